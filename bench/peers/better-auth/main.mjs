// main.mjs runs Better Auth as a peer that bench/peers measures.
//
//	node main.mjs load DIR FILE
//		creates the database DIR/data.sqlite with the accounts of FILE and an administrator,
//		and prints the cookie of the administrator's session
//	node main.mjs serve DIR
//		serves DIR on a free port of 127.0.0.1, and prints its address
//	node main.mjs version
//		prints the versions of Better Auth, Node and SQLite
//
// The settings are those of Better Auth's guide for SQLite, with its plugin for administrators. What
// differs: passwords are hashed with bcrypt of cost 10, as in the other products; accounts have a
// city and a note; the database has an index on the city and a write-ahead log; and requests are
// not limited.

import bcrypt from "bcrypt"
import { betterAuth } from "better-auth"
import { getMigrations } from "better-auth/db/migration"
import { toNodeHandler } from "better-auth/node"
import { admin } from "better-auth/plugins/admin"
import { createReadStream } from "node:fs"
import { createServer } from "node:http"
import { createRequire } from "node:module"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { DatabaseSync } from "node:sqlite"

const cost = 10
const origin = "http://127.0.0.1"

// open opens the database in dir. As in PocketBase, the write-ahead log is not synced to the disk
// after each transaction.
function open(dir) {
	const db = new DatabaseSync(join(dir, "data.sqlite"))
	db.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
	return db
}

// options returns Better Auth's settings for a database.
function options(db) {
	return {
		database: db,
		baseURL: origin,
		secret: "a secret of at least 32 characters",
		emailAndPassword: {
			enabled: true,
			password: {
				hash: (password) => bcrypt.hash(password, cost),
				verify: ({ hash, password }) => bcrypt.compare(password, hash),
			},
		},
		user: { additionalFields: { city: { type: "string", required: false }, note: { type: "string", required: false } } },
		plugins: [admin()],
		rateLimit: { enabled: false },
		telemetry: { enabled: false },
	}
}

// load fills the database, and returns the cookie of the administrator's session.
async function load(dir, file) {
	const db = open(dir)
	const settings = options(db)
	await (await getMigrations(settings)).runMigrations()
	db.exec("CREATE INDEX user_city ON user (city); BEGIN")
	const user = db.prepare("INSERT INTO user (id, name, email, emailVerified, createdAt, updatedAt, city) VALUES (?, ?, ?, 0, ?, ?, ?)")
	const account = db.prepare("INSERT INTO account (id, accountId, providerId, userId, password, createdAt, updatedAt) VALUES (?, ?, 'credential', ?, ?, ?, ?)")
	const now = new Date().toISOString()
	for await (const line of createInterface({ input: createReadStream(file) })) {
		const { facets: f, password } = JSON.parse(line)
		user.run(f.uid, f.name, f.email, now, now, f.city)
		account.run(`a${f.uid}`, f.uid, f.uid, password, now, now)
	}
	db.exec("COMMIT")
	const auth = betterAuth(settings)
	const password = crypto.randomUUID()
	const { user: made } = await auth.api.createUser({ body: { name: "admin", email: "admin@example.org", password, role: "admin" } })
	const { headers } = await auth.api.signInEmail({ body: { email: made.email, password }, returnHeaders: true })
	db.close()
	return headers.getSetCookie()[0].split(";")[0]
}

// serve serves the database until the process is told to end.
function serve(dir) {
	const server = createServer(toNodeHandler(betterAuth(options(open(dir)))))
	server.keepAliveTimeout = 0 // a connection that waits for its turn is kept
	server.listen(0, "127.0.0.1", () => console.error(`listening on http://127.0.0.1:${server.address().port}`))
	process.on("SIGTERM", () => process.exit(0))
}

const [command, dir, file] = process.argv.slice(2)
if (command === "load" && file) {
	console.log(await load(dir, file))
} else if (command === "serve" && dir) {
	serve(dir)
} else if (command === "version") {
	const versions = createRequire(import.meta.url)("./package.json").dependencies
	console.log(`better-auth ${versions["better-auth"]}, node ${process.version}, sqlite ${process.versions.sqlite}`)
} else {
	console.error("usage: main.mjs load DIR FILE, main.mjs serve DIR, or main.mjs version")
	process.exit(2)
}
