// This program checks an OpenAPI 3.1 document against the official schema and the strict rules of a
// linter. Warnings count as errors. Run it with: node lint.js openapi.json

import { createConfig, lint } from '@redocly/openapi-core'
import { Validator } from '@seriousme/openapi-schema-validator'

const [path] = process.argv.slice(2)
const validation = await new Validator().validate(path)
if (!validation.valid) console.log('schema errors:', JSON.stringify(validation.errors, null, 1))

const problems = await lint({ ref: path, config: await createConfig({ extends: ['recommended-strict'] }) })
for (const { severity, ruleId, message, location } of problems) console.log(`${severity} ${ruleId}: ${message} ${location[0]?.pointer}`)

process.exitCode = validation.valid && problems.length === 0 ? 0 : 1
