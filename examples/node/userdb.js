// The site's client of 'userdb serve'. It uses fetch and no client library.

const base = (process.env.USERDB_URL ?? 'http://127.0.0.1:8470').replace(/\/$/, '')
const patience = Number(process.env.USERDB_TIMEOUT_MS ?? 10_000)
const key = process.env.USERDB_KEY
if (!key) throw new Error("USERDB_KEY is not set: 'userdb apikey create web --scope write login' makes one")

/** A Refusal is a problem (RFC 9457) that userdb answers: its code does not change, and errors has all that is wrong. */
export class Refusal extends Error {
  constructor({ status, code, title, detail, retry_after: wait, errors = [] }) {
    super(detail ?? title)
    Object.assign(this, { status, code, wait, errors })
  }
}

/** Away means that userdb does not answer, or has no answer from its store. Later it has. */
export class Away extends Error {}

/** ask sends a request, and returns what is answered; undefined where the answer has no body. */
export async function ask(method, path, body, headers = {}) {
  let answer, text
  try {
    answer = await fetch(base + path, {
      method,
      headers: { Authorization: `Bearer ${key}`, ...(body && { 'Content-Type': 'application/json' }), ...headers },
      body: body && JSON.stringify(body),
      signal: AbortSignal.timeout(patience), // covers the whole response
    })
    text = await answer.text()
  } catch (cause) {
    throw new Away('userdb does not answer', { cause })
  }
  if (answer.status === 503) throw new Away(text)
  if (!answer.ok) throw new Refusal(JSON.parse(text))
  return text ? JSON.parse(text) : undefined
}
