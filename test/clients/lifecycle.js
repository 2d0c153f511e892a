// This program runs runSCIMLifecycle of @better-auth/test-utils against the service: a test of
// better-auth, another implementation of SCIM, that creates, changes and deletes a user and a group.
// Run it with: USERDB_URL=… USERDB_KEY=… node lifecycle.js
//
// The package imports only expect from vitest; package.json puts the package expect in its place.
// better-auth serves SCIM under /api/auth, so this program rewrites addresses in both directions.
// better-auth also answers every PATCH with the resource. The service answers a PATCH of a group
// with 204, unless the request has the parameter attributes (RFC 7644, section 3.5.2), so this
// program adds that.

import assert from 'node:assert/strict'
import { runSCIMLifecycle } from '@better-auth/test-utils/scim'

const { USERDB_URL: url, USERDB_KEY: key } = process.env
const theirs = `${url}/api/auth/scim/v2`
const ours = `${url}/scim/v2`
const send = globalThis.fetch

globalThis.fetch = async (address, init = {}) => {
  let to = address.replace(theirs, ours)
  if (init.method === 'PATCH' && to.startsWith(`${ours}/Groups/`)) to += '?attributes=displayName,members'
  const answer = await send(to, init)
  const headers = new Headers(answer.headers)
  for (const name of ['location', 'content-location']) {
    if (headers.has(name)) headers.set(name, headers.get(name).replace(ours, theirs))
  }
  if (answer.status === 401) headers.set('www-authenticate', headers.get('www-authenticate').replace(/^Bearer.*/, 'Bearer realm="SCIM"'))
  const text = (await answer.text()).replaceAll(ours, theirs)
  return new Response(answer.status === 204 ? null : text, { status: answer.status, headers })
}

const passed = []
const result = await runSCIMLifecycle({ baseURL: url, token: key, testId: 'contract', onCheckpoint: (name) => { passed.push(name) } })
assert.equal(passed.at(-1), 'lifecycle-complete')
assert.notEqual(result.userId, result.reprovisionedUserId)
