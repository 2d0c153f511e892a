// The site's client of 'userdb serve'. It uses fetch and no client library.

const base = (process.env.USERDB_URL ?? 'http://127.0.0.1:8470').replace(/\/$/, '')
const timeout = Number(process.env.USERDB_TIMEOUT_MS ?? 10_000)
const key = process.env.USERDB_KEY
if (!key) throw new Error("USERDB_KEY is not set: create a key with 'userdb apikey create site --scope read write login --type user'")

/**
 * A Refusal is an error that userdb answers, a problem in the format of RFC 9457. Its code never
 * changes between versions, and its errors list everything that is wrong with the request.
 */
export class Refusal extends Error {
  constructor({ status, code, title, detail, retry_after: wait, ticket, methods, errors = [] }) {
    super(detail ?? title)
    Object.assign(this, { status, code, wait, methods, errors })
    // The ticket of the code factor is a secret: console.error must not show it.
    Object.defineProperty(this, 'ticket', { value: ticket, enumerable: false })
  }
}

/**
 * Unavailable means that userdb or its store does not answer, or is too busy. The same request may
 * succeed later. If no answer came, cause says why.
 */
export class Unavailable extends Error {}

/** ask sends a request and returns the body of the answer, or undefined if it has none. */
export async function ask(method, path, body, headers = {}) {
  let answer, text
  try {
    answer = await fetch(base + path, {
      method,
      headers: { Authorization: `Bearer ${key}`, ...(body && { 'Content-Type': 'application/json' }), ...headers },
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(timeout), // covers the whole response
    })
    text = await answer.text()
  } catch (cause) {
    throw new Unavailable('userdb does not answer', { cause })
  }
  if (answer.status === 503) throw new Unavailable(text)
  if (!answer.ok) throw new Refusal(JSON.parse(text))
  return text ? JSON.parse(text) : undefined
}
