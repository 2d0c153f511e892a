// This script adds suggestions, live events, the progress of jobs, buttons that copy, and times in
// the reader's time zone. All pages work without it.
"use strict";

const get = async (url) => {
  const answer = await fetch(url, { headers: { Accept: "text/html, application/json" }, redirect: "error" });
  if (!answer.ok) throw new Error(answer.status);
  return answer;
};
const parse = async (answer) => new DOMParser().parseFromString(await answer.text(), "text/html");

// localTimes shows times, which pages contain in UTC, in the reader's time zone. Dates without a
// time of day stay as they are.
const day = { day: "numeric", month: "short", year: "numeric" };
const clock = { hour: "2-digit", minute: "2-digit" };
const localTimes = (within) => {
  for (const time of within.querySelectorAll("time[datetime]:not([data-date])")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    const minutes = (Date.now() - at) / 60000;
    time.title = at.toLocaleString("en-GB", { ...day, ...clock, second: "2-digit", timeZoneName: "short" });
    if (minutes >= 0 && minutes < 1) time.textContent = "just now";
    else if (minutes >= 0 && minutes < 60) time.textContent = Math.floor(minutes) + " min ago";
    else if (minutes >= 0 && minutes < 1440) time.textContent = Math.floor(minutes / 60) + " h ago";
    else {
      time.textContent = at.toLocaleDateString("en-GB", day);
      if ("clock" in time.dataset) time.textContent += " " + at.toLocaleTimeString("en-GB", clock);
    }
  }
};

// suggest offers to complete the text in an input.
const suggest = (input) => {
  const list = document.getElementById(input.getAttribute("list"));
  let timer = 0;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      const text = input.value;
      if (text.trim().length < 2) return;
      try {
        const values = await (await get(input.dataset.suggest + "?" + new URLSearchParams({ q: text }))).json();
        if (input.value !== text) return;
        list.replaceChildren(...values.map((value) => Object.assign(document.createElement("option"), { value })));
      } catch { /* the page works without suggestions */ }
    }, 150);
  });
};

const maxShown = 500;

// follow adds new events to the list as they happen.
const follow = (list) => {
  document.querySelector("[data-live-note]")?.removeAttribute("hidden");
  const poll = async () => {
    if (document.hidden) { // do not keep the session of a hidden page alive
      setTimeout(poll, 2000);
      return;
    }
    try {
      const page = await parse(await get("/console/history?" + new URLSearchParams({ since: list.dataset.since, kind: list.dataset.kind })));
      const news = page.querySelector("ol");
      localTimes(news);
      if (news.children.length) list.prepend(...news.children);
      while (list.children.length > maxShown) list.lastElementChild.remove();
      list.dataset.since = news.dataset.since;
      setTimeout(poll, 2000);
    } catch { setTimeout(poll, 10000); }
  };
  setTimeout(poll, 2000);
};

// watch refreshes the job on the page until it has ended.
const watch = (job) => {
  const poll = async () => {
    try {
      const fresh = (await parse(await get(location.href))).querySelector("[data-job]");
      if (!fresh) return;
      const focused = job.contains(document.activeElement);
      if (!focused || !fresh.hasAttribute("data-running")) {
        job.replaceWith(fresh);
        localTimes(fresh);
        job = fresh;
        if (focused) document.getElementById("main").focus();
      }
      if (job.hasAttribute("data-running")) setTimeout(poll, 1000);
    } catch { setTimeout(poll, 5000); }
  };
  if (job.hasAttribute("data-running")) setTimeout(poll, 1000);
};

// copyable adds a button that copies the text of the element. If the browser does not allow that,
// the button selects the text. Pages over plain HTTP from elsewhere have no clipboard.
const copyable = (code) => {
  if (!navigator.clipboard) return;
  const button = Object.assign(document.createElement("button"), { type: "button", className: "second copy", textContent: "Copy" });
  const name = document.createElement("span");
  name.className = "hidden";
  name.textContent = " " + code.dataset.copy;
  button.append(name);
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    for (const other of document.querySelectorAll("button.copy")) other.firstChild.textContent = "Copy";
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.firstChild.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.firstChild.textContent = "Selected";
    }
  });
  code.after(" ", button);
};

// onlyChanged leaves out the facets of a form that are as the page showed them.
const onlyChanged = (form) => form.addEventListener("formdata", ({ formData }) => {
  for (const name of [...formData.keys()]) {
    const facet = name.startsWith("~shown:") ? name.slice(7) : "";
    if (facet === "" || facet === "rev" || formData.get(name) !== formData.get(facet)) continue;
    formData.delete(name);
    formData.delete(facet);
  }
});

// A double click sends a form once. Otherwise a browser shows the answer to the second form, and
// not the secret in the answer to the first. The forms of passkeys have a script of their own.
let sent = { form: null, at: 0 };
addEventListener("submit", (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post" || "passkey" in form.dataset) return;
  if (sent.form === form && event.timeStamp - sent.at < 1000) event.preventDefault();
  else sent = { form, at: event.timeStamp };
});

// The slash puts the cursor into the search box.
addEventListener("keydown", (event) => {
  const box = document.getElementById("q");
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing || !box) return;
  event.preventDefault();
  box.focus();
  box.select();
});

// The search box that has the focus from the start has the cursor before its text. Select the text,
// so that the next search replaces it, unless somebody has entered text meanwhile.
const search = document.querySelector("#q[autofocus]");
if (search && search.value === search.defaultValue) search.select();

// selectAll makes a box select all rows of its table.
const selectAll = (box) => {
  box.hidden = false;
  box.addEventListener("change", () => {
    for (const other of box.closest("table").querySelectorAll("tbody input[type=checkbox]")) other.checked = box.checked;
  });
};

localTimes(document);
setInterval(() => localTimes(document), 30000);
document.querySelectorAll("form[data-changed]").forEach(onlyChanged);
document.querySelectorAll("[data-suggest]").forEach(suggest);
document.querySelectorAll("[data-since]").forEach(follow);
document.querySelectorAll("[data-all]").forEach(selectAll);
document.querySelectorAll("[data-job]").forEach(watch);
document.querySelectorAll("[data-copy]").forEach(copyable);

// When the reader goes back, a browser may restore a page without loading it. A restored form would
// not start another job but lead to the one that it started before, so load it again. Other pages
// keep what was entered.
addEventListener("pageshow", (event) => {
  if (event.persisted && document.querySelector("input[name=job]")) location.reload();
});
