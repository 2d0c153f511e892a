// A site where people sign up, sign in and sign out. 'userdb serve' keeps their accounts.

import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import express from 'express'
import * as pages from './pages.js'
import { Refusal, Unavailable, ask } from './userdb.js'

const app = express().disable('x-powered-by')
// The proxies that are trusted to report a visitor's address, by which failed sign-ins are counted.
// Express calls this setting "trust proxy".
app.set('trust proxy', process.env.TRUST_PROXY ?? false)

// The URL of the site, with which links in mails begin and from which forms must come, and the
// names and options of its cookies.
let site, cookie

const send = (res, status, page) => res.status(status).type('html').send(page.text)
const input = (req, ...names) => Object.fromEntries(names.map((name) => [name, typeof req.body?.[name] === 'string' ? req.body[name] : '']))
const visitorOf = (req) => ({ origin: req.ip, agent: req.get('User-Agent')?.slice(0, 1000) })
const pathOf = (entry) => `/v1/types/user/entries/${encodeURIComponent(entry.uid)}`

app.use((req, res, next) => {
  res.set({
    'Content-Security-Policy': "default-src 'none'; script-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
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
  .clearCookie(cookie.ticket, cookie.options).clearCookie(cookie.challenge, cookie.options)
const setSession = (res, answer) => keepSession(res, answer).redirect(303, '/')
const clearSession = (res, to = '/login') => res.clearCookie(cookie.name, cookie.options).redirect(303, to)

/** signedIn passes on requests with a valid session, and redirects all others to the sign-in page. */
async function signedIn(req, res, next) {
  const found = await ask('POST', '/v1/session', { secret: secretOf(req) ?? '' })
  if (!found.active) return clearSession(res)
  req.entry = found.entry
  next()
}

const ruleTexts = { taken: 'Somebody has that already.', min: 'At least 8 characters.', max: 'That is too long.', blocklist: 'Too many people use that one.' }

/**
 * showAgain shows a form again, with what its visitor has to correct. It throws errors that the
 * visitor cannot correct to the handler at the end of this file.
 */
function showAgain(res, err, page, names, more = {}) {
  if (!(err instanceof Refusal) || ![401, 409, 422].includes(err.status) || err.code === 'key') throw err
  const state = { wrong: {} }
  for (const { pointer = '', rule, detail } of err.errors) {
    const name = names.find((name) => pointer === `/facets/${name}` || pointer === `/${name}`)
    if (name) state.wrong[name] ??= ruleTexts[rule] ?? detail
  }
  if (Object.keys(state.wrong).length === 0) state.message = err.message
  send(res, err.status, page({ ...state, ...more }))
}

app.get('/', signedIn, (req, res) => send(res, 200, pages.account(req.entry, {})))
app.get('/signup', (req, res) => send(res, 200, pages.signup({ once: randomUUID() })))
app.get('/login', (req, res) => send(res, 200, pages.login({ message: 'again' in req.query && 'Please sign in again to continue.' })))
app.get('/forgot', (req, res) => send(res, 200, pages.forgot({})))
app.get('/passkey.js', (req, res) => res.sendFile('passkey.js', { root: import.meta.dirname }))

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
 * signIn begins a session or, if the account has a second factor, leads to the page for the second
 * step. Meanwhile the ticket of the first step is in a cookie, with the methods of the second.
 */
async function signIn(req, res, identifier, password) {
  try {
    setSession(res, await ask('POST', '/v1/types/user/login', { identifier, password, session: {}, ...visitorOf(req) }))
  } catch (err) {
    if (err.code !== 'factor') throw err
    res.cookie(cookie.ticket, [err.ticket, ...err.methods].join('.'), { ...cookie.options, maxAge: 5 * 60_000 }).redirect(303, '/login/code')
  }
}

/**
 * sendChallenge sends a challenge of the service to the script passkey.js. The state that belongs to
 * it is in a cookie until the answer comes, so that only the browser that asked can answer.
 */
const sendChallenge = (res, { publicKey, state }) => res
  .cookie(cookie.challenge, state, { ...cookie.options, sameSite: 'strict', maxAge: 5 * 60_000 }).json({ publicKey })

/** answerOf returns the answer to a challenge, from the form that passkey.js has sent. */
function answerOf(req) {
  let answer = {}
  try {
    answer = { ...JSON.parse(input(req, 'passkey').passkey) }
  } catch {} // no JSON: the service refuses the empty answer
  return { state: cookieOf(req, cookie.challenge) ?? '', answer }
}

app.post('/signup', async (req, res) => {
  const { name, email, password, once } = input(req, 'name', 'email', 'password', 'once')
  try {
    // Until somebody has shown that the address is theirs, the account gets no second factor.
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

app.post('/login/passkey/challenge', async (req, res) => sendChallenge(res, await ask('POST', '/v1/types/user/login/passkey/challenge')))

// A passkey says whose account it is, and counts as both steps.
app.post('/login/passkey', async (req, res) => {
  try {
    setSession(res, await ask('POST', '/v1/types/user/login/passkey', { passkey: answerOf(req), session: {}, ...visitorOf(req) }))
  } catch (err) {
    showAgain(res, err, pages.login, [], { message: 'This passkey was not accepted.' })
  }
})

/** halfSignedIn passes on requests of visitors who have taken the first step of two. */
function halfSignedIn(req, res, next) {
  [req.ticket, ...req.methods] = (cookieOf(req, cookie.ticket) ?? '').split('.')
  if (req.ticket) next()
  else res.redirect(303, '/login')
}

app.get('/login/code', halfSignedIn, (req, res) => send(res, 200, pages.code(req.methods, {})))

app.post('/login/code/challenge', halfSignedIn, async (req, res) => {
  sendChallenge(res, await ask('POST', '/v1/types/user/login/factor/challenge', { ticket: req.ticket }))
})

app.post('/login/code', halfSignedIn, async (req, res) => {
  const { totp, recovery_code, passkey } = input(req, 'totp', 'recovery_code', 'passkey')
  const more = passkey ? { message: 'This passkey was not accepted, or its time is up.' }
    : { message: '', wrong: { [recovery_code ? 'recovery_code' : 'totp']: 'That is not the right code, or its time is up.' } }
  const page = (state) => pages.code(req.methods, state)
  if (!totp && !recovery_code && !passkey) return send(res, 422, page(more))
  try {
    const step = passkey ? { passkey: answerOf(req) } : recovery_code ? { recovery_code } : { totp }
    setSession(res, await ask('POST', '/v1/types/user/login/factor', { ticket: req.ticket, ...step, session: {}, ...visitorOf(req) }))
  } catch (err) {
    showAgain(res, err, page, [], more)
  }
})

// Factors are added and removed in a session that began within ten minutes. In an older one the
// service answers with the code not_verified.

const ownerOf = (req) => ({ session: secretOf(req), ...visitorOf(req) })
const begin = (req, factor) => ask('POST', `${pathOf(req.entry)}/factors`, { ...factor, account: req.entry.facets.email, session: secretOf(req) })

async function showSecurity(req, res, status, state) {
  const { factors } = await ask('GET', `${pathOf(req.entry)}/factors`)
  send(res, status, pages.security(req.entry, factors, state))
}

/** finishChange keeps the new session if all others have ended, and shows new codes, once. */
function finishChange(res, change) {
  if (change.session) keepSession(res, change)
  if (change.recovery_codes) send(res, 200, pages.codes(change.recovery_codes))
  else res.redirect(303, '/security')
}

app.get('/security', signedIn, (req, res) => showSecurity(req, res, 200, {}))

app.post('/factors', signedIn, async (req, res) => send(res, 200, pages.factor(await begin(req, { kind: 'totp', issuer: site.hostname }))))

app.post('/factors/confirm', signedIn, async (req, res) => {
  const { id, secret, uri, totp } = input(req, 'id', 'secret', 'uri', 'totp')
  try {
    finishChange(res, await ask('POST', `${pathOf(req.entry)}/factors/${encodeURIComponent(id)}/confirm`, { code: totp, ...ownerOf(req) }))
  } catch (err) {
    if (err.code === 'not_found') return showSecurity(req, res, 404, { message: 'That took too long. Add the app again.' })
    showAgain(res, err, (state) => pages.factor({ id, secret, uri }, state), [], { wrong: { totp: 'That is not the right code.' } })
  }
})

app.post('/passkeys/challenge', signedIn, async (req, res) => {
  sendChallenge(res, await begin(req, { kind: 'passkey', name: input(req, 'name').name.slice(0, 64) }))
})

app.post('/passkeys', signedIn, async (req, res) => {
  try {
    finishChange(res, await ask('POST', `${pathOf(req.entry)}/factors/passkey/confirm`, { passkey: answerOf(req), ...ownerOf(req) }))
  } catch (err) {
    if (err.code !== 'login' && err.code !== 'duplicate') throw err
    await showSecurity(req, res, err.status, { message: 'This passkey was not accepted. Try again.' })
  }
})

app.post('/factors/remove', signedIn, async (req, res) => {
  try {
    finishChange(res, await ask('DELETE', `${pathOf(req.entry)}/factors/${encodeURIComponent(input(req, 'id').id)}`, ownerOf(req)))
  } catch (err) {
    if (err.code !== 'not_found') throw err
    res.redirect(303, '/security') // the form was sent twice
  }
})

app.post('/recovery-codes', signedIn, async (req, res) => finishChange(res, await ask('POST', `${pathOf(req.entry)}/recovery-codes`, ownerOf(req))))

async function endSession(req, res, to) {
  await ask('POST', '/v1/session/end', { secret: secretOf(req) ?? '' })
  clearSession(res, to)
}

app.post('/logout', (req, res) => endSession(req, res))

app.post('/logout-everywhere', signedIn, async (req, res) => {
  await ask('DELETE', `${pathOf(req.entry)}/sessions`)
  clearSession(res)
})

app.post('/password', signedIn, async (req, res) => {
  const { current, password } = input(req, 'current', 'password')
  try {
    // The change ends all sessions, and this visitor gets a new session.
    const change = { current, password, owner_session: secretOf(req), session: {}, ...visitorOf(req) }
    setSession(res, await ask('PUT', `${pathOf(req.entry)}/password`, change))
  } catch (err) {
    const more = err.code === 'login' ? { message: '', wrong: { current: 'That is not your password.' } } : {}
    showAgain(res, err, (state) => pages.account(req.entry, state), ['password'], more)
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
  if (err.code === 'not_verified') return endSession(req, res, '/login?again')
  if (err.code === 'unproven') return res.redirect(303, '/security') // which says what to do
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
  cookie = { name, ticket: `${name}-ticket`, challenge: `${name}-challenge`, options: { httpOnly: true, sameSite: 'lax', secure, path: '/' } }
  console.log(`listening on port ${server.address().port}, as ${site.origin}`)
})
