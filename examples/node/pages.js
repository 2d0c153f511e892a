// The pages, as text. The tag html escapes all values in ${} that are not html themselves.

class Html { constructor(text) { this.text = text } }
const escapes = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }
const show = (v) => Array.isArray(v) ? v.map(show).join('') : v instanceof Html ? v.text : String(v || '').replace(/[&<>"']/g, (c) => escapes[c])
const html = (parts, ...values) => new Html(parts.reduce((all, part, i) => all + show(values[i - 1]) + part))

export const page = (title, body) => html`<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title>
<main>
<h1>${title}</h1>
${body}
</main>
</html>
`
// Returns a field with its error message beside it. Addresses use the type text: in the type email,
// browsers change ß to ss, which is another address.
const field = (name, label, type, autocomplete, { values = {}, wrong = {} }) => html`
<p><label for="${name}">${label}</label><br>
<input id="${name}" name="${name}" type="${type}" autocomplete="${autocomplete}" required value="${values[name]}"
  ${autocomplete === 'one-time-code' ? html`inputmode="numeric"` : ''}
  ${autocomplete === 'email' ? html`inputmode="email" autocapitalize="none" spellcheck="false"` : ''}
  ${wrong[name] && html`aria-invalid="true" aria-describedby="${name}-wrong"`}>
${wrong[name] && html`<strong id="${name}-wrong">${wrong[name]}</strong>`}</p>`

// The script shows this form, and puts the answer of a passkey into it.
const passkey = (kind, action, challenge, fields, button) => html`
<form hidden method="post" action="${action}" data-passkey="${kind}" data-challenge="${challenge}">
<input type="hidden" name="passkey">${fields}<button>${button}</button>
<strong hidden role="alert">That did not work. Try again, or continue without a passkey.</strong></form>
<script type="module" src="/passkey.js"></script>`

const form = (action, state, fields, button) => html`
${state.message && html`<p role="alert">${state.message}</p>`}
<form method="post" action="${action}">${fields}<button>${button}</button></form>`

export const signup = (state) => page('Sign up', html`${form('/signup', state, [
  html`<input type="hidden" name="once" value="${state.once}">`,
  field('name', 'Name', 'text', 'username', state),
  field('email', 'E-mail', 'text', 'email', state),
  field('password', 'Password', 'password', 'new-password', state)], 'Sign up')}
<p><a href="/login">I have an account</a></p>`)

export const login = (state) => page('Sign in', html`${form('/login', state, [
  field('identifier', 'Name or e-mail', 'text', 'username', state),
  field('password', 'Password', 'password', 'current-password', state)], 'Sign in')}
${passkey('get', '/login/passkey', '/login/passkey/challenge', '', 'Sign in with a passkey')}
<p><a href="/signup">Sign up</a> · <a href="/forgot">I forgot my password</a></p>`)

const totp = (state) => field('totp', 'The 6 digits that your app shows', 'text', 'one-time-code', state)

export const code = (methods, state) => page('Second step', html`
${state.message && html`<p role="alert">${state.message}</p>`}
${methods.includes('passkey') && passkey('get', '/login/code', '/login/code/challenge', '', 'Use your passkey')}
${methods.includes('totp') && form('/login/code', {}, totp(state), 'Continue')}
<h2>Without your ${methods.includes('totp') ? 'app' : 'passkey'}</h2>
${form('/login/code', {}, field('recovery_code', 'One of your recovery codes', 'text', 'off', state), 'Continue')}
<p><a href="/login">Sign in again</a></p>`)

const kinds = { totp: 'App that shows codes', passkey: 'Passkey', recovery: 'Recovery codes' }

const add = html`
<h2>Add a passkey</h2><noscript><p>Passkeys need JavaScript.</p></noscript>
${passkey('create', '/passkeys', '/passkeys/challenge', field('name', 'Name, such as my laptop', 'text', 'off', {}), 'Add a passkey')}
<h2>Add an app that shows codes</h2>${form('/factors', {}, '', 'Add an app')}`

const signIn = (kinds) => kinds.includes('passkey') ? 'You sign in with a passkey, or with your password and a second step.'
  : kinds.length ? 'You sign in with your password and a second step.' : 'You sign in with your password alone.'

export const security = (entry, factors, state) => page('Security', html`
${state.message && html`<p role="alert">${state.message}</p>`}
<p>${signIn(factors.map(({ kind }) => kind))}</p>
${factors.map(({ id, kind, name, added, unused }) => form(kind === 'recovery' ? '/recovery-codes' : '/factors/remove', {}, html`
<p><b>${name || kinds[kind]}</b>, ${kind === 'recovery' ? `${unused} left` : `added on ${added.slice(0, 10)}`}</p>
<input type="hidden" name="id" value="${id}">`, kind === 'recovery' ? 'Make new codes' : 'Remove'))}
${!entry.verified.includes('email') ? html`<p>First show that the address ${entry.facets.email} is yours: <a href="/forgot">choose a new password by mail</a>.</p>`
: factors.filter(({ kind }) => kind !== 'recovery').length < 8 ? add : html`<p>These are as many as an account can have.</p>`}
<p><a href="/">Back</a></p>`)

export const factor = ({ id, secret, uri }, state = {}) => page('Add an app', html`
<p>Type this key into an app that shows codes, or <a href="${String(uri).startsWith('otpauth://') ? uri : ''}">open it on this device</a>:</p>
<p><code>${secret}</code></p>
${form('/factors/confirm', { ...state, message: '' }, [
  ...Object.entries({ id, secret, uri }).map(([name, value]) => html`<input type="hidden" name="${name}" value="${value}">`), totp(state)], 'Continue')}
<p><a href="/security">Cancel</a></p>`)

export const codes = (all) => page('Your recovery codes', html`
<p>Print this page, or write the codes down. Each of them works once in place of your app or passkey, and they are not shown again.</p>
<ol>${all.map((code) => html`<li><code>${code}</code></li>`)}</ol>
<p><a href="/security">I have saved them</a></p>`)

export const forgot = (state) => page('Forgotten password', form('/forgot', state, field('identifier', 'Name or e-mail', 'text', 'username', state), 'Send me a link'))

export const reset = (state) => page('Choose a new password', form('/reset', state, [
  html`<input type="hidden" name="secret" value="${state.secret}">`,
  field('password', 'New password', 'password', 'new-password', state)], 'Set it'))

export const account = (entry, state) => page(`Hello, ${entry.facets.name}`, html`<p>${entry.facets.email}</p>
<h2>Change the password</h2>${form('/password', state, [
  field('current', 'Current password', 'password', 'current-password', state),
  field('password', 'New password', 'password', 'new-password', state)], 'Change it')}
<h2>Security</h2><p><a href="/security">Passkeys, and codes as a second step</a></p>
<h2>Sign out</h2>${form('/logout', {}, '', 'Sign out')}${form('/logout-everywhere', {}, '', 'Sign out everywhere')}`)
