// Judges a document of OpenAPI 3.1: by its own schema, and by the strict rules of a linter, which has no warnings.
// node lint.js openapi.json

import { createConfig, lint } from '@redocly/openapi-core'
import { Validator } from '@seriousme/openapi-schema-validator'

const [path] = process.argv.slice(2)
const said = await new Validator().validate(path)
if (!said.valid) console.log('by the schema:', JSON.stringify(said.errors, null, 1))

const found = await lint({ ref: path, config: await createConfig({ extends: ['recommended-strict'] }) })
for (const { severity, ruleId, message, location } of found) console.log(`${severity} ${ruleId}: ${message} ${location[0]?.pointer}`)

process.exitCode = said.valid && found.length === 0 ? 0 : 1
