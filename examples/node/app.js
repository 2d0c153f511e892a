// A site on which people sign up, in and out. 'userdb serve' keeps their accounts.

import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import express from 'express'
import * as pages from './pages.js'
import { Refusal, Unavailable, ask } from './userdb.js'

const app = express().disable('x-powered-by')
// The proxies that are trusted to report a visitor's address, by which failed sign-ins are counted.
// Express calls this setting "trust proxy".
app.set('trust proxy', process.env.TRUST_PROXY ?? false)

// The URL of the site, for links in mails and for its own forms; the name and attributes of the
// cookie.
let site, cookie

const send = (res, status, page) => res.status(status).type('html').send(page.text)
const input = (req, ...names) => Object.fromEntries(names.map((name) => [name, typeof req.body?.[name] === 'string' ? req.body[name] : '']))
const visitorOf = (req) => ({ origin: req.ip, agent: req.get('User-Agent')?.slice(0, 1000) })
const pathOf = (entry) => `/v1/types/user/entries/${encodeURIComponent(entry.uid)}`

app.use((req, res, next) => {
  res.set({
    'Content-Security-Policy': "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    'Referrer-Policy': 'same-origin', 'X-Content-Type-Options': 'nosniff', 'Cache-Control': 'no-store',
  })
  // Forms of other sites must not act for visitors of this one. Browsers say in Origin where a POST
  // comes from, with the scheme and the port.
  if (!['GET', 'HEAD'].includes(req.method) && req.get('Origin') !== site.origin) {
    return send(res, 403, pages.page('Not from here', 'That form was not sent from this site.'))
  }
  next()
}, express.urlencoded({ extended: false, limit: '16kb' }))

const cookieOf = (req, name) => (req.get('Cookie') ?? '').split(/; */).find((pair) => pair.startsWith(`${name}=`))?.slice(name.length + 1)
const secretOf = (req) => cookieOf(req, cookie.name)
const keepSession = (res, { session }) => res.cookie(cookie.name, session.secret, { ...cookie.options, expires: new Date(session.expires) })
  .clearCookie(cookie.ticket, cookie.options)
const setSession = (res, answer) => keepSession(res, answer).redirect(303, '/')
const clearSession = (res) => res.clearCookie(cookie.name, cookie.options).redirect(303, '/login')

/** signedIn passes on requests with a valid session, and redirects all others to the sign-in page. */
async function signedIn(req, res, next) {
  const found = await ask('POST', '/v1/session', { secret: secretOf(req) ?? '' })
  if (!found.active) return clearSession(res)
  req.entry = found.entry
  req.level = found.session.level
  next()
}

const ruleTexts = { taken: 'Somebody has that already.', min: 'That is too short.', max: 'That is too long.', blocklist: 'Too many people use that one.' }

/**
 * showAgain shows a form again, with what its visitor has to correct. It throws errors that the
 * visitor cannot correct to the handler at the end of this file.
 */
function showAgain(res, err, page, names, more = {}) {
  if (!(err instanceof Refusal) || !(err.code === 'unproven' || [401, 409, 422].includes(err.status)) || err.code === 'key') throw err
  const state = { wrong: {} }
  for (const { pointer = '', rule, detail } of err.errors) {
    const name = names.find((name) => pointer === `/facets/${name}` || pointer === `/${name}`)
    if (name) state.wrong[name] ??= ruleTexts[rule] ?? detail
  }
  if (Object.keys(state.wrong).length === 0) state.message = err.message
  send(res, err.status, page({ ...state, ...more }))
}

app.get('/', signedIn, (req, res) => send(res, 200, pages.account(req.entry, { level: req.level })))
app.get('/signup', (req, res) => send(res, 200, pages.signup({ once: randomUUID() })))
app.get('/login', (req, res) => send(res, 200, pages.login({})))
app.get('/forgot', (req, res) => send(res, 200, pages.forgot({})))

/**
 * create creates one account, even if the visitor sends the form twice, or if an answer is lost and
 * create sends the request again. All requests of one form have the same Idempotency-Key. A request
 * that the service is too busy for is not sent again, since that would keep it busy.
 */
async function create(account, once, tries = 3) {
  try {
    await ask('POST', '/v1/types/user/entries', account, { 'Idempotency-Key': once })
  } catch (err) {
    const lost = err instanceof Unavailable && err.cause
    if (tries === 1 || !lost && err.code !== 'conflict') throw err
    await sleep(500) // conflict: the same request is in progress
    await create(account, once, tries - 1)
  }
}

/**
 * signIn begins a session or, if the account has a second factor, leads to the page that asks for a
 * code. Meanwhile the ticket of the first step is in a cookie.
 */
async function signIn(req, res, identifier, password) {
  try {
    setSession(res, await ask('POST', '/v1/types/user/login', { identifier, password, session: {}, ...visitorOf(req) }))
  } catch (err) {
    if (err.code !== 'factor') throw err
    res.cookie(cookie.ticket, err.ticket, { ...cookie.options, maxAge: 5 * 60_000 }).redirect(303, '/login/code')
  }
}

app.post('/signup', async (req, res) => {
  const { name, email, password, once } = input(req, 'name', 'email', 'password', 'once')
  try {
    // Nobody has shown that the address is theirs. Until then the account gets no second factor.
    await create({ facets: { name, email }, password, self_registered: true, origin: req.ip }, once || randomUUID())
    await signIn(req, res, email, password)
  } catch (err) {
    showAgain(res, err, pages.signup, ['name', 'email', 'password'], { values: { name, email }, once: randomUUID() })
  }
})

app.post('/login', async (req, res) => {
  const { identifier, password } = input(req, 'identifier', 'password')
  try {
    await signIn(req, res, identifier, password)
  } catch (err) {
    showAgain(res, err, pages.login, [], { values: { identifier }, message: 'No account has this name or e-mail with this password.' })
  }
})

app.get('/login/code', (req, res) => cookieOf(req, cookie.ticket) ? send(res, 200, pages.code({})) : res.redirect(303, '/login'))

app.post('/login/code', async (req, res) => {
  const ticket = cookieOf(req, cookie.ticket)
  if (!ticket) return res.redirect(303, '/login')
  const { totp, recovery_code } = input(req, 'totp', 'recovery_code')
  const wrong = { [recovery_code ? 'recovery_code' : 'totp']: 'That is not the right code, or its time is up.' }
  if (!totp && !recovery_code) return send(res, 422, pages.code({ wrong }))
  try {
    const code = recovery_code ? { recovery_code } : { totp }
    setSession(res, await ask('POST', '/v1/types/user/login/factor', { ticket, ...code, session: {}, ...visitorOf(req) }))
  } catch (err) {
    showAgain(res, err, pages.code, [], { wrong })
  }
})

// The owner of a session adds an app within ten minutes after the password was checked.
app.post('/factors', signedIn, async (req, res) => {
  const { own } = input(req, 'own')
  try {
    await ask('POST', '/v1/session/verify', { secret: secretOf(req), password: own, ...visitorOf(req) })
    const added = { kind: 'totp', issuer: site.hostname, account: req.entry.facets.email, session: secretOf(req) }
    send(res, 200, pages.factor(await ask('POST', `${pathOf(req.entry)}/factors`, added)))
  } catch (err) {
    const more = {
      login: { message: '', wrong: { own: 'That is not your password.' } },
      unproven: { message: 'First show that the address is yours: choose a new password by mail.' },
    }[err.code]
    showAgain(res, err, (state) => pages.account(req.entry, { level: req.level, ...state }), [], more)
  }
})

app.post('/factors/confirm', signedIn, async (req, res) => {
  const { id, secret, uri, totp } = input(req, 'id', 'secret', 'uri', 'totp')
  try {
    const change = await ask('POST', `${pathOf(req.entry)}/factors/${encodeURIComponent(id)}/confirm`, { code: totp, session: secretOf(req), ...visitorOf(req) })
    // All sessions have ended, and this visitor gets a new one. The codes are shown only now.
    if (change.session) send(keepSession(res, change), 200, pages.codes(change.recovery_codes))
    else res.redirect(303, '/')
  } catch (err) {
    if (err.code === 'not_found') return send(res, 404, pages.account(req.entry, { level: req.level, message: 'That took too long. Add the app again.' }))
    showAgain(res, err, (state) => pages.factor({ id, secret, uri }, state), [], { wrong: { totp: 'That is not the right code.' } })
  }
})

app.post('/logout', async (req, res) => {
  await ask('POST', '/v1/session/end', { secret: secretOf(req) ?? '' })
  clearSession(res)
})

app.post('/logout-everywhere', signedIn, async (req, res) => {
  await ask('DELETE', `${pathOf(req.entry)}/sessions`)
  clearSession(res)
})

app.post('/password', signedIn, async (req, res) => {
  const { current, password } = input(req, 'current', 'password')
  try {
    // All sessions end with the old password, and this visitor gets a new one.
    setSession(res, await ask('PUT', `${pathOf(req.entry)}/password`, { current, password, session: {}, ...visitorOf(req) }))
  } catch (err) {
    const more = err.code === 'login' ? { message: '', wrong: { current: 'That is not your password.' } } : {}
    showAgain(res, err, (state) => pages.account(req.entry, { level: req.level, ...state }), ['password'], more)
  }
})

app.post('/forgot', async (req, res) => {
  const { identifier } = input(req, 'identifier')
  try {
    const { address, secret } = await ask('POST', '/v1/types/user/tokens', { purpose: 'reset', identifier, field: 'email', life: '1h', origin: req.ip })
    // Your site sends this by mail.
    console.log(`mail to ${address}: ${site.origin}/reset?secret=${encodeURIComponent(secret)}`)
  } catch (err) {
    // Do not reveal who has an account: an unknown account and too many mails look like a mail that
    // was sent.
    if (!['not_found', 'throttled', 'hint', 'usage'].includes(err.code)) throw err
  }
  send(res, 200, pages.page('Check your mail', 'If there is such an account, a link is on its way. It works for an hour.'))
})

// The link only shows a form, because programs that scan mail also open links. Only the POST uses
// the token up.
app.get('/reset', (req, res) => send(res, 200, pages.reset({ secret: req.query.secret })))

app.post('/reset', async (req, res) => {
  const { secret, password } = input(req, 'secret', 'password')
  try {
    setSession(res, await ask('POST', '/v1/password-resets', { purpose: 'reset', secret, password, session: {}, ...visitorOf(req) }))
  } catch (err) {
    // A link sets the password of an account with a second factor, but does not sign in to it.
    if (err.code === 'factor') return res.redirect(303, '/login')
    if (err.code === 'not_found') return send(res, 404, pages.forgot({ message: 'That link was used or has expired. Ask for another one.' }))
    showAgain(res, err, pages.reset, ['password'], { secret })
  }
})

// Handles all other errors. Express recognizes this handler by its four parameters.
app.use((err, req, res, next) => {
  if (res.headersSent) return next(err)
  if (err instanceof Unavailable) {
    console.error(`${err.message} ${err.cause?.cause ?? err.cause ?? ''}`)
    return send(res.set('Retry-After', '5'), 503, pages.page('Please come back in a moment', 'Accounts are not available just now. Try again.'))
  }
  if (err.code === 'throttled') {
    const wait = err.wait < 90 ? `${err.wait} seconds` : `${Math.ceil(err.wait / 60)} minutes`
    return send(res.set('Retry-After', String(err.wait)), 429, pages.page('Too many attempts', `Please wait ${wait}, and try again.`))
  }
  // An error with a status below 500 comes from a request that Express cannot read.
  const ours = err instanceof Refusal || !(err.status < 500)
  console.error(err)
  send(res, ours ? 500 : err.status, pages.page('That did not work', ours ? 'The error is ours, and has been logged.' : 'Please go back and try again.'))
})

const server = app.listen(Number(process.env.PORT ?? 3000), process.env.HOST ?? 'localhost', (err) => {
  if (err) throw err
  site = new URL(process.env.SITE ?? `http://localhost:${server.address().port}`)
  const secure = !['localhost', '127.0.0.1'].includes(site.hostname)
  const name = secure ? '__Host-session' : 'session'
  cookie = { name, ticket: `${name}-ticket`, options: { httpOnly: true, sameSite: 'lax', secure, path: '/' } }
  console.log(`listening on port ${server.address().port}, as ${site.origin}`)
})
