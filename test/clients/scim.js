// This program creates, changes and deletes users and groups as a directory does. It uses the
// resources, messages, filters and PATCH of another implementation of SCIM, and checks that the
// service gets the same results. Run it with: USERDB_URL=… USERDB_KEY=… node scim.js

import assert from 'node:assert/strict'
import SCIMMY from 'scimmy'

const { User, Group, ServiceProviderConfig, ResourceType } = SCIMMY.Schemas
const { ListResponse, PatchOp, ErrorResponse } = SCIMMY.Messages
const { USERDB_URL: url, USERDB_KEY: key } = process.env

// ask sends a request, checks the status, and returns the body.
async function ask(method, path, status, body) {
  const answer = await fetch(`${url}/scim/v2${path}`, {
    method, headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/scim+json' }, body: body && JSON.stringify(body),
  })
  const text = await answer.text()
  assert.equal(answer.status, status, `${method} ${path}: ${text}`)
  if (text) assert.equal(answer.headers.get('content-type'), 'application/scim+json')
  return text ? JSON.parse(text) : undefined
}

const plain = (value) => JSON.parse(JSON.stringify(value))

// parse returns a resource as the other implementation reads it, and checks that it is unchanged.
function parse(Kind, body) {
  const resource = new Kind(body, 'out')
  assert.deepEqual(plain(resource), body)
  return resource
}

async function expectError(method, path, status, scimType, body) {
  const response = await ask(method, path, status, body)
  assert.throws(() => new ErrorResponse(response), (e) => e.status === `${status}` && e.scimType === scimType)
}

// listAll returns the resources on all pages of a list.
async function listAll(Kind, path) {
  const all = []
  for (;;) {
    const page = new ListResponse(await ask('GET', `${path}${path.includes('?') ? '&' : '?'}startIndex=${all.length + 1}&count=3`, 200))
    assert.equal(page.startIndex, all.length + 1)
    assert.equal(page.itemsPerPage, page.Resources.length)
    for (const one of page.Resources) all.push(parse(Kind, one))
    if (all.length >= page.totalResults) return all
    assert.ok(page.Resources.length > 0, 'a page is empty, but there should be more')
  }
}

// patch changes a user in both implementations and compares the results.
async function patch(id, ...Operations) {
  const message = new PatchOp({ schemas: [PatchOp.id], Operations })
  const before = await ask('GET', `/Users/${id}`, 200)
  const want = plain((await message.apply(new User(before))) ?? before)
  const got = await ask('PATCH', `/Users/${id}`, 200, plain(message))
  parse(User, got)
  assert.deepEqual({ ...got, meta: 0, schemas: 0 }, { ...want, meta: 0, schemas: 0 })
}

new ServiceProviderConfig(await ask('GET', '/ServiceProviderConfig', 200), 'out')
for (const one of (await ask('GET', '/ResourceTypes', 200)).Resources) new ResourceType(one, 'out')

const ids = []
for (let i = 0; i < 7; i++) {
  const user = new User({ userName: `person${i}@example.com`, externalId: `E-${i}`, displayName: `Person ${i}`, name: { givenName: 'Pat', familyName: `No. ${i}` }, active: i % 2 === 0 })
  const made = parse(User, await ask('POST', '/Users', 201, plain(user)))
  assert.equal(made.active, i % 2 === 0)
  ids.push(made.id)
}
await expectError('POST', '/Users', 409, 'uniqueness', plain(new User({ userName: 'PERSON1@example.com' })))
await expectError('POST', '/Users', 400, 'invalidValue', { schemas: [User.id] })
await expectError('GET', '/Users?filter=displayName+co+%22x%22', 400, 'invalidFilter')
await expectError('GET', '/Users/nobody', 404, undefined)

const all = await listAll(User, '/Users')
assert.deepEqual(all.map((user) => user.id).sort(), [...ids].sort())
for (const filter of [
  'userName eq "person3@example.com"', 'externalId eq "E-5"', `id eq "${ids[2]}"`, 'userName eq "nobody@example.com"', 'userName eq "person3@example.com" and externalId eq "E-3"',
  'userName eq "person3@example.com" and externalId eq "E-4"', 'emails.value eq "person4@example.com"',
]) {
  const want = new SCIMMY.Types.Filter(filter).match(all.map(plain))
  const got = await listAll(User, `/Users?filter=${encodeURIComponent(filter)}`)
  assert.deepEqual(got.map((user) => user.id), want.map((user) => user.id), filter)
}

await patch(ids[0], { op: 'replace', path: 'displayName', value: 'Another' })
await patch(ids[0], { op: 'add', value: { displayName: 'One more', name: { givenName: 'Kim' } } })
await patch(ids[0], { op: 'replace', path: 'name.familyName', value: 'Last' }, { op: 'remove', path: 'displayName' })
await patch(ids[0], { op: 'replace', path: 'active', value: false })
await patch(ids[0], { op: 'replace', value: { active: true, externalId: 'new' } })
await patch(ids[0], { op: 'remove', path: 'name' })

const replaced = parse(User, await ask('PUT', `/Users/${ids[1]}`, 200, plain(new User({ userName: 'person1@example.com', displayName: 'All anew' }))))
assert.equal(replaced.externalId, undefined)
assert.equal(replaced.active, false)

const team = parse(Group, await ask('POST', '/Groups', 201, plain(new Group({ displayName: 'Team', members: ids.slice(0, 3).map((value) => ({ value })) }))))
assert.deepEqual(team.members.map((member) => member.value).sort(), ids.slice(0, 3).sort())
await expectError('POST', '/Groups', 409, 'uniqueness', plain(new Group({ displayName: 'team' })))
const change = (...Operations) => ask('PATCH', `/Groups/${team.id}`, 204, plain(new PatchOp({ schemas: [PatchOp.id], Operations })))
const members = async () => (await ask('GET', `/Groups/${team.id}`, 200)).members.map((member) => member.value).sort()
await change({ op: 'add', path: 'members', value: [{ value: ids[4] }] }, { op: 'remove', path: `members[value eq "${ids[0]}"]` }, { op: 'replace', path: 'displayName', value: 'Crew' })
assert.deepEqual(await members(), [ids[1], ids[2], ids[4]].sort())
await change({ op: 'replace', path: 'members', value: [{ value: ids[5] }] })
assert.deepEqual(await members(), [ids[5]])
await change({ op: 'remove', path: 'members' })
assert.deepEqual(await members(), [])
assert.deepEqual((await listAll(Group, '/Groups?filter=displayName+eq+%22crew%22')).map((group) => group.id), [team.id])
await ask('DELETE', `/Groups/${team.id}`, 204)
for (const id of ids) await ask('DELETE', `/Users/${id}`, 204)
assert.equal((await ask('GET', '/Users?count=0', 200)).totalResults, 0)
