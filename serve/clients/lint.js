// This program checks an OpenAPI 3.1 document against the official schema and the strict rules of a
// linter. Warnings count as errors. Run it with: node lint.js openapi.json

import { createConfig, lint } from '@redocly/openapi-core'
import { Validator } from '@seriousme/openapi-schema-validator'

const [path] = process.argv.slice(2)
const said = await new Validator().validate(path)
if (!said.valid) console.log('schema errors:', JSON.stringify(said.errors, null, 1))

const found = await lint({ ref: path, config: await createConfig({ extends: ['recommended-strict'] }) })
for (const { severity, ruleId, message, location } of found) console.log(`${severity} ${ruleId}: ${message} ${location[0]?.pointer}`)

process.exitCode = said.valid && found.length === 0 ? 0 : 1
