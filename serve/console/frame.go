package console

import (
	"html/template"
	"strings"
)

// A crumb is a link to a page above the one that is shown. Path is "" for a group of the rail.
type crumb struct{ Text, Path string }

// An undo describes the form that undoes the last action. Name and Value are those of its input, if
// it has one.
type undo struct{ Path, Name, Value string }

// A railLink is a link in the rail, and the group in which it stands.
type railLink struct{ path, text, group string }

// railLinks lists the links in the rail, except the lists of accounts.
var railLinks = []railLink{
	{"/console/history", "History", "Activity"},
	{"/console/import", "Import", "Data"},
	{"/console/export", "Export", "Data"},
	{"/console/check", "Check", "Data"},
	{"/console/jobs", "Jobs", "Data"},
	{"/console/schema", "Schema", "Settings"},
	{"/console/keys", "API keys", "Settings"},
	{"/console/operators", "Operators", "Settings"},
	{"/console/status", "Status", "Settings"},
}

// securityPath is the page at which operators manage their own second step.
const securityPath = "/console/security"

// locate sets Trail, the breadcrumbs above the page, and RailPath, the link in the rail that is
// marked. A page that the rail does not link to sets RailPath itself beforehand, unless it is about
// an account.
func (p *page) locate() {
	if strings.HasPrefix(p.Path, securityPath+"/") {
		p.RailPath, p.Above = securityPath, []crumb{{"Your sign-in", securityPath}}
	}
	if p.RailPath == "" {
		p.RailPath = p.Path
	}
	for _, link := range railLinks {
		if p.RailPath != link.path {
			continue
		}
		p.Trail = []crumb{{Text: link.group}}
		if p.Path != link.path || p.Title == "" {
			p.Trail = append(p.Trail, crumb{link.text, link.path})
		}
	}
	for _, name := range p.Types {
		list, escaped := "/console/types/"+name, typePath(name)
		switch {
		case p.RailPath == list && p.Path == list:
			if p.Path = escaped; len(p.Types) > 1 {
				p.Trail = []crumb{{Text: "Accounts"}}
			}
		case p.RailPath != list && !strings.HasPrefix(p.RailPath, list+"/"):
			continue
		case len(p.Types) > 1:
			p.Trail = []crumb{{Text: "Accounts"}, {name, escaped}}
		default:
			p.Trail = []crumb{{"Accounts", escaped}}
		}
		p.RailPath = escaped
	}
	p.Trail = append(p.Trail, p.Above...)
	if len(p.Trail) == 0 && p.Path != "/console" {
		p.Trail = []crumb{{"Home", "/console"}}
	}
}

// Current returns the attribute that marks a link to path if path is the page that is shown, or the
// link to that page in the rail.
func (p page) Current(path string) template.HTMLAttr {
	switch path {
	case p.Path:
		return ` aria-current="page"`
	case p.RailPath:
		return ` aria-current="true"`
	}
	return ""
}
