// This program uses an account from its creation to its deletion, with a client that is generated
// from /openapi.json. It must compile in strict mode, without the type any and without casts. If
// something cannot be written that way, the document or the service is wrong.
//
// USERDB_URL is the URL of the service, USERDB_KEY a key that may do everything, and
// USERDB_READ_KEY one that may only read.

import assert from 'node:assert/strict'
import createClient from 'openapi-fetch'
import type { components, paths } from './api.d.ts'

type Problem = components['schemas']['Problem']
type Entry = components['schemas']['Entry']

/** A response as the client returns it. */
interface Answer<T> {
  data?: T
  error?: Problem
  response: Response
}

const baseUrl = env('USERDB_URL')
const api = clientOf(env('USERDB_KEY'))
const user = { type: 'user' }
const origin = '192.0.2.7'
const password = 'correct horse battery'

function env(name: string): string {
  const value = process.env[name]
  assert(value, `${name} is not set`)
  return value
}

function clientOf(key: string) {
  return createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } })
}

/** ok checks that a request succeeded, and returns the body and the entity tag. */
async function ok<T>(status: number, request: Promise<Answer<T>>): Promise<{ data: T; etag: string }> {
  const { data, error, response } = await request
  assert.equal(error, undefined)
  assert.equal(response.status, status)
  assert(data !== undefined, 'no body')
  return { data, etag: response.headers.get('ETag') ?? '' }
}

/** noContent checks that a request succeeded without a body. */
async function noContent(request: Promise<Answer<unknown>>) {
  const { error, response } = await request
  assert.equal(error, undefined)
  assert.equal(response.status, 204)
}

/** refused checks that a request failed, checks the shape of the problem, and returns it. */
async function refused(status: number, code: Problem['code'], request: Promise<Answer<unknown>>): Promise<Problem> {
  const { error, response } = await request
  assert(error, `got status ${response.status}, want a problem`)
  assert.deepEqual([response.status, error.status, error.code], [status, status, code])
  assert.equal(error.type, `urn:userdb:error:${code}`)
  assert.equal(response.headers.get('Content-Type'), 'application/problem+json')
  assert.equal(response.headers.get('X-Request-Id'), error.request_id)
  assert(error.title && error.detail)
  if (error.retry_after !== undefined) assert.equal(response.headers.get('Retry-After'), String(error.retry_after))
  return error
}

/** rules returns the pointer and the rule of each error in a problem, sorted. */
function rules(problem: Problem): string[] {
  return (problem.errors ?? []).map((wrong) => `${wrong.pointer ?? ''} ${wrong.rule ?? ''}`).sort()
}

async function about() {
  const { data: schema } = await ok(200, api.GET('/v1/schema'))
  assert.equal(schema.types['user']?.fields?.['name']?.role, 'secondary')
  const { data: status } = await ok(200, api.GET('/v1/status'))
  assert(status.types.some((type) => type.type === 'user'))
  await refused(401, 'key', clientOf('udb_wrong').GET('/v1/status'))
  await refused(404, 'not_found', api.GET('/v1/types/{type}/count', { params: { path: { type: 'nosuch' } } }))
  const reader = clientOf(env('USERDB_READ_KEY'))
  await ok(200, reader.GET('/v1/schema'))
  await refused(403, 'scope', reader.POST('/v1/types/{type}/entries', { params: { path: user }, body: {} }))
}

async function create(): Promise<Entry> {
  const once = { path: user, header: { 'Idempotency-Key': 'sign-up-1' } }
  const body = { facets: { name: 'Bob', email: 'bob@example.com', age: 41 }, tags: ['new'], password }
  const first = await ok(201, api.POST('/v1/types/{type}/entries', { params: once, body }))
  const again = await ok(201, api.POST('/v1/types/{type}/entries', { params: once, body }))
  assert.equal(again.data.uid, first.data.uid)
  assert.equal(first.etag, `"${first.data.rev}"`)
  await refused(422, 'idempotency', api.POST('/v1/types/{type}/entries', { params: once, body: { facets: { name: 'Eve' } } }))

  const taken = await refused(409, 'duplicate', api.POST('/v1/types/{type}/entries', { params: { path: user }, body: { facets: { name: 'BOB' } } }))
  assert.deepEqual(rules(taken), ['/facets/name taken'])
  const all = api.POST('/v1/types/{type}/entries', { params: { path: user }, body: { facets: { name: 'bob', email: 'x', age: 'old' }, password: 'short' } })
  assert.deepEqual(rules(await refused(422, 'invalid', all)), ['/facets/age codec', '/facets/email email', '/facets/name taken', '/password min'])
  await refused(413, 'usage', api.POST('/v1/types/{type}/entries', { params: { path: user }, body: { facets: { name: 'x'.repeat(2 << 20) } } }))
  return first.data
}

async function read(bob: Entry) {
  const at = { type: 'user', uid: bob.uid }
  const { data, etag } = await ok(200, api.GET('/v1/types/{type}/entries/{uid}', { params: { path: at } }))
  assert.deepEqual(data, bob)
  const same = await api.GET('/v1/types/{type}/entries/{uid}', { params: { path: at, header: { 'If-None-Match': etag } } })
  assert.equal(same.response.status, 304)
  for (const value of ['BOB', 'bob@EXAMPLE.com']) {
    const found = await ok(200, api.POST('/v1/types/{type}/lookup', { params: { path: user }, body: { value } }))
    assert.equal(found.data.uid, bob.uid)
  }
  await refused(404, 'not_found', api.POST('/v1/types/{type}/lookup', { params: { path: user }, body: { value: 'Bob', field: 'email' } }))
  await refused(400, 'usage', api.POST('/v1/types/{type}/lookup', { params: { path: user }, body: { value: '' } }))
  const { data: many } = await ok(200, api.POST('/v1/types/{type}/entries/get', { params: { path: user }, body: { uids: [bob.uid, 'nobody'] } }))
  assert.deepEqual(many.entries.map((entry) => entry?.uid ?? null), [bob.uid, null])
}

async function change(bob: Entry): Promise<Entry> {
  const at = { type: 'user', uid: bob.uid }
  const path = '/v1/types/{type}/entries/{uid}'
  const old = { 'If-Match': `"${bob.rev}"` }
  const patched = await ok(200, api.PATCH(path, { params: { path: at, header: old }, body: { facets: { job: 'cook', age: null } } }))
  assert.deepEqual([patched.data.facets['job'], patched.data.facets['age']], ['cook', undefined])
  await refused(412, 'precondition', api.PATCH(path, { params: { path: at, header: old }, body: { facets: { job: 'baker' } } }))
  // An entry that was read may be sent back with changes.
  const back = await ok(200, api.PATCH(path, { params: { path: at }, body: { ...patched.data, facets: { job: 'baker' } } }))
  assert.equal(back.data.facets['job'], 'baker')

  const tags = await ok(200, api.PUT('/v1/types/{type}/entries/{uid}/tags', { params: { path: at }, body: { tags: ['b', 'a'] } }))
  assert.deepEqual(tags.data.tags, ['a', 'b'])
  await noContent(api.PUT('/v1/types/{type}/entries/{uid}/tags/{tag}', { params: { path: { ...at, tag: 'x/y ü' } } }))
  await noContent(api.DELETE('/v1/types/{type}/entries/{uid}/tags/{tag}', { params: { path: { ...at, tag: 'a' } } }))
  const left = await ok(200, api.GET('/v1/types/{type}/entries/{uid}/tags', { params: { path: at } }))
  assert.deepEqual(left.data.tags, ['b', 'x/y ü'])
  return back.data
}

/** logIn returns the secret of a new session. */
async function logIn(identifier: string, secret = password): Promise<string> {
  const body = { identifier, password: secret, origin, agent: 'life', session: { life: '2d', idle: '1h' } }
  const { data } = await ok(200, api.POST('/v1/types/{type}/login', { params: { path: user }, body }))
  assert(data.session, 'no session began')
  return data.session.secret
}

async function sessions(bob: Entry) {
  const at = { type: 'user', uid: bob.uid }
  const getSession = async (secret: string) => (await ok(200, api.POST('/v1/session', { body: { secret } }))).data
  await refused(401, 'login', api.POST('/v1/types/{type}/login', { params: { path: user }, body: { identifier: 'bob', password: 'wrong', origin } }))
  const withoutSession = await ok(200, api.POST('/v1/types/{type}/login', { params: { path: user }, body: { identifier: 'bob', password, origin } }))
  assert.equal(withoutSession.data.session, undefined)

  const secret = await logIn('bob@example.com')
  const active = await getSession(secret)
  assert(active.active) // from here on the compiler knows that the entry and the session exist
  assert.equal(active.entry.uid, bob.uid)
  assert(Date.parse(active.session.expires) > Date.now())
  assert.deepEqual(await getSession('made up'), { active: false })
  const { data: verified } = await ok(200, api.POST('/v1/session/verify', { body: { secret, password, origin } }))
  assert(verified.active && Date.parse(verified.session.verified) >= Date.parse(active.session.verified))
  await refused(401, 'login', api.POST('/v1/session/verify', { body: { secret, password: 'wrong', origin } }))

  const elsewhere = await ok(201, api.POST('/v1/types/{type}/entries/{uid}/sessions', { params: { path: at }, body: { origin, life: '1h' } }))
  const { data: devices } = await ok(200, api.GET('/v1/types/{type}/entries/{uid}/sessions', { params: { path: at } }))
  assert.deepEqual(devices.sessions.map((s) => s.id).sort(), [active.session.id, elsewhere.data.session.id].sort())
  await noContent(api.DELETE('/v1/types/{type}/entries/{uid}/sessions/{id}', { params: { path: { ...at, id: active.session.id } } }))
  assert.equal((await getSession(secret)).active, false)
  await noContent(api.POST('/v1/session/end', { body: { secret: elsewhere.data.session.secret } }))
  assert.equal((await getSession(elsewhere.data.session.secret)).active, false)
  const third = await logIn('bob')
  await noContent(api.DELETE('/v1/types/{type}/entries/{uid}/sessions', { params: { path: at } }))
  assert.equal((await getSession(third)).active, false)

  const before = await logIn('bob')
  const passwordPath = '/v1/types/{type}/entries/{uid}/password'
  await refused(401, 'login', api.PUT(passwordPath, { params: { path: at }, body: { password: 'another horse 1', current: 'wrong', origin } }))
  await refused(422, 'invalid', api.PUT(passwordPath, { params: { path: at }, body: { password: 'x', current: password, origin } }))
  const changed = await ok(200, api.PUT(passwordPath, { params: { path: at }, body: { password: 'another horse 1', current: password, origin, session: {} } }))
  assert(changed.data.session && (await getSession(changed.data.session.secret)).active)
  assert.equal((await getSession(before)).active, false)

  await noContent(api.POST('/v1/types/{type}/entries/{uid}/disable', { params: { path: at } }))
  await refused(409, 'conflict', api.POST('/v1/types/{type}/entries/{uid}/sessions', { params: { path: at }, body: {} }))
  await noContent(api.POST('/v1/types/{type}/entries/{uid}/enable', { params: { path: at } }))
  await logIn('bob', 'another horse 1')
}

async function tokens(bob: Entry) {
  const issued = await ok(200, api.POST('/v1/types/{type}/tokens', { params: { path: user }, body: { purpose: 'reset', identifier: 'BOB', field: 'email', origin } }))
  assert.equal(issued.data.address, 'bob@example.com')
  const token = { purpose: 'reset', secret: issued.data.secret }
  assert.equal((await ok(200, api.POST('/v1/tokens/peek', { body: token }))).data.entry.uid, bob.uid)
  assert.deepEqual(rules(await refused(422, 'invalid', api.POST('/v1/password-resets', { body: { ...token, password: 'x' } }))), ['/password min'])
  const reset = await ok(200, api.POST('/v1/password-resets', { body: { ...token, password, session: {} } }))
  assert(reset.data.session?.secret)
  assert.deepEqual(reset.data.entry.verified, ['email'])
  await refused(404, 'not_found', api.POST('/v1/password-resets', { body: { ...token, password } }))

  const link = await ok(200, api.POST('/v1/types/{type}/tokens', { params: { path: user }, body: { purpose: 'link', uid: bob.uid, value: '42', life: '10m' } }))
  const spent = await ok(200, api.POST('/v1/tokens/redeem', { body: { purpose: 'link', secret: link.data.secret } }))
  assert.equal(spent.data.value, '42')
  await refused(404, 'not_found', api.POST('/v1/tokens/redeem', { body: { purpose: 'link', secret: link.data.secret } }))
  await refused(400, 'usage', api.POST('/v1/types/{type}/tokens', { params: { path: user }, body: { purpose: 'link' } }))
}

async function invitation() {
  const invited = await ok(200, api.POST('/v1/types/{type}/invitations', { params: { path: user }, body: { field: 'email', address: 'carol@example.com', value: 'x', origin } }))
  assert(!invited.data.known && invited.data.secret)
  const { secret } = invited.data
  const peeked = await ok(200, api.POST('/v1/types/{type}/invitations/peek', { params: { path: user }, body: { secret } }))
  assert.deepEqual([peeked.data.address, peeked.data.value], ['carol@example.com', 'x'])
  const accept = '/v1/types/{type}/invitations/accept'
  await refused(409, 'duplicate', api.POST(accept, { params: { path: user }, body: { secret, facets: { name: 'bob' }, password } }))
  const made = await ok(201, api.POST(accept, { params: { path: user }, body: { secret, facets: { name: 'Carol' }, password, session: {} } }))
  assert.deepEqual([made.data.entry.facets['email'], made.data.entry.verified], ['carol@example.com', ['email']])
  assert(made.data.session?.secret)
  await refused(404, 'not_found', api.POST(accept, { params: { path: user }, body: { secret, password } }))
}

async function listings() {
  const lines = [1, 2, 3, 4, 5].map((n) => JSON.stringify({ type: 'user', facets: { name: `user${n}`, age: 20 + n, job: 'cook' } })).join('\n')
  const importLines = (query: { dry_run?: boolean; on_duplicate?: 'skip' }, body: string) =>
    api.POST('/v1/types/{type}/import', { params: { path: user, query }, body, bodySerializer: (text) => text, headers: { 'Content-Type': 'application/x-ndjson' }, parseAs: 'text' })
  assert.match((await ok(200, importLines({ dry_run: true }, lines))).data, /"created":5/)
  assert.match((await ok(200, importLines({}, lines))).data, /"created":5/)
  assert.match((await ok(200, importLines({ on_duplicate: 'skip' }, lines))).data, /"skipped":5/)
  const names: unknown[] = []
  let after: string | null = ''
  while (after !== null) {
    const query: { order: string; limit: number; after?: string } = { order: 'age', limit: 2, ...(after && { after }) }
    const page: { data: components['schemas']['Page'] } = await ok(200, api.GET('/v1/types/{type}/entries', { params: { path: user, query } }))
    names.push(...page.data.entries.map((entry) => entry.facets['name']))
    after = page.data.next
  }
  // Entries without an age come first.
  assert.deepEqual([names.slice(0, 2).sort(), names.slice(2)], [['Bob', 'Carol'], ['user1', 'user2', 'user3', 'user4', 'user5']])
  const some = { where: ['job:cook'], disabled: false }
  const { data: cooks } = await ok(200, api.GET('/v1/types/{type}/entries', { params: { path: user, query: { ...some, order: 'age', gte: '22', lte: '24', reverse: true } } }))
  assert.deepEqual(cooks.entries.map((entry) => entry.facets['age']), [24, 23, 22])
  const { data: total } = await ok(200, api.GET('/v1/types/{type}/count', { params: { path: user, query: some } }))
  assert.deepEqual([total.count, total.exact], [5, true])
  await refused(400, 'usage', api.GET('/v1/types/{type}/entries', { params: { path: user, query: { after: 'made up' } } }))
  const { data: text } = await ok(200, api.GET('/v1/types/{type}/export', { params: { path: user }, parseAs: 'text' }))
  assert.match(text, /"user5"/)
}

async function throttled() {
  const body = { identifier: 'user1', password: 'wrong', origin: '192.0.2.8' }
  for (let tries = 0; tries < 100; tries++) {
    const { error } = await api.POST('/v1/types/{type}/login', { params: { path: user }, body })
    if (error?.code === 'throttled') {
      const problem = await refused(429, 'throttled', api.POST('/v1/types/{type}/login', { params: { path: user }, body }))
      assert(problem.retry_after)
      return
    }
  }
  assert.fail('nobody had to wait')
}

/** texts returns the values of a field as plain texts, without labels and marks of verification. */
function texts(entry: Entry, field: string): string[] {
  return (entry.values?.[field] ?? []).map((value) => (typeof value === 'string' ? value : value.value))
}

/** values uses a type with a field that may have several values. */
async function values(bob: Entry) {
  assert.equal(bob.values, undefined) // its type has no such field
  const member = { type: 'member' }
  const [ann, work, home] = ['ann@example.com', 'ann@work.example', 'ann@home.example']
  const made = await ok(201, api.POST('/v1/types/{type}/entries', { params: { path: member }, body: { values: { email: [ann, work] } } }))
  assert.deepEqual([made.data.facets['email'], made.data.values?.['email']], [ann, [ann, work]])
  const at = { ...member, uid: made.data.uid }
  const path = '/v1/types/{type}/entries/{uid}'
  for (const value of [ann, 'ANN@work.example']) {
    const found = await ok(200, api.POST('/v1/types/{type}/lookup', { params: { path: member }, body: { value } }))
    assert.deepEqual(found.data, made.data)
  }

  // An entry may be sent back as it was read; other values require the revision.
  const moved = await ok(200, api.PATCH(path, { params: { path: at }, body: { ...made.data, facets: { city: 'York' } } }))
  assert.deepEqual([moved.data.facets['city'], texts(moved.data, 'email')], ['York', [ann, work]])
  const all = { values: { email: [work, home] } }
  await refused(428, 'precondition', api.PATCH(path, { params: { path: at }, body: all }))
  await refused(412, 'precondition', api.PATCH(path, { params: { path: at, header: { 'If-Match': made.etag } }, body: all }))
  const set = await ok(200, api.PATCH(path, { params: { path: at, header: { 'If-Match': moved.etag } }, body: all }))
  assert.deepEqual([set.data.facets['email'], texts(set.data, 'email')], [work, [work, home]])

  const field = { path: { ...at, field: 'email' } }
  for (let times = 0; times < 2; times++) {
    const added = await ok(200, api.POST('/v1/types/{type}/entries/{uid}/values/{field}/add', { params: field, body: { value: ann } }))
    assert.deepEqual(texts(added.data, 'email'), [work, home, ann])
  }
  const first = await ok(200, api.POST('/v1/types/{type}/entries/{uid}/values/{field}/first', { params: field, body: { value: ann } }))
  assert.equal(first.data.facets['email'], ann)
  const wrong = await refused(422, 'invalid', api.POST('/v1/types/{type}/entries/{uid}/values/{field}/first', { params: field, body: { value: 'x@example.com' } }))
  assert.deepEqual(rules(wrong), ['/value absent'])
  const removed = await ok(200, api.POST('/v1/types/{type}/entries/{uid}/values/{field}/remove', { params: field, body: { value: work } }))
  assert.deepEqual(texts(removed.data, 'email'), [ann, home])
  const taken = await refused(409, 'duplicate', api.POST('/v1/types/{type}/entries', { params: { path: member }, body: { values: { email: ['x@example.com', home] } } }))
  assert.deepEqual(rules(taken), ['/values/email taken'])

  const issued = await ok(200, api.POST('/v1/types/{type}/tokens', { params: { path: member }, body: { purpose: 'add:email', uid: at.uid, value: home } }))
  const redeemed = await ok(200, api.POST('/v1/tokens/redeem', { body: { purpose: 'add:email', secret: issued.data.secret } }))
  const proved = redeemed.data.entry.values?.['email']?.[1]
  assert(proved !== undefined && typeof proved !== 'string' && proved.verified) // from here on it is an object
  assert(Date.parse(proved.verified) <= Date.now())
  const { data: read } = await ok(200, api.GET(path, { params: { path: at } }))
  assert.deepEqual(read, redeemed.data.entry)
  await ok(200, api.PATCH(path, { params: { path: at }, body: read }))
  const none = await ok(200, api.PATCH(path, { params: { path: at, header: { 'If-Match': '*' } }, body: { values: { email: null } } }))
  assert.equal(none.data.values, undefined)
  await noContent(api.DELETE(path, { params: { path: at } }))
}

async function end(bob: Entry) {
  const at = { type: 'user', uid: bob.uid }
  const { data: exported } = await ok(200, api.GET('/v1/types/{type}/entries/{uid}/export', { params: { path: at }, parseAs: 'text' }))
  assert.match(exported, /bob@example\.com/)
  await noContent(api.DELETE('/v1/types/{type}/entries/{uid}/waits', { params: { path: at } }))
  await noContent(api.DELETE('/v1/types/{type}/entries/{uid}', { params: { path: at } }))
  await refused(404, 'not_found', api.DELETE('/v1/types/{type}/entries/{uid}', { params: { path: at } }))
  const once = { path: user, header: { 'Idempotency-Key': 'sign-up-1' } }
  const body = { facets: { name: 'Bob', email: 'bob@example.com', age: 41 }, tags: ['new'], password }
  await refused(410, 'not_found', api.POST('/v1/types/{type}/entries', { params: once, body }))
}

await about()
let bob = await create()
await read(bob)
bob = await change(bob)
await sessions(bob)
await tokens(bob)
await invitation()
await listings()
await values(bob)
await throttled()
await end(bob)
console.log('ok')
