// Package password hashes passwords, checks them, and decides whether a new one may be set. It knows neither Redis nor
// a schema.
//
// A [Hasher] writes bcrypt as $2a$, which the original program reads too, and hashes the bytes of a password exactly as
// given: nothing is trimmed, folded or normalised. What is stored:
//
//	$2a$12$<22 characters of salt><31 of hash>        60 bytes
//	pKEY$2a$12$<22 characters of salt><31 of hash>    64 bytes, with a pepper
//
// KEY is three characters that name the pepper and reveal nothing else of it. Both forms are short enough for Redis to
// keep the entry compact.
//
// bcrypt reads 72 bytes and ignores the rest. So a longer password is refused when it is set, and is a wrong one when
// it is checked. With a pepper, a secret key that is not in the database, 1024 bytes are allowed: bcrypt then gets the
// base64 of the password's HMAC-SHA-384.
//
// # What is verified
//
// Besides its own, a Hasher verifies $2b$ and $2y$, argon2id, scrypt, PBKDF2 (SHA-1, SHA-256, SHA-512) and sha-crypt
// ($5$, $6$) in their common text forms, and what other products store:
//
//	pbkdf2_sha256$390000$<salt>$<key>                 Django; also pbkdf2_sha1$ and scrypt$
//	argon2$argon2id$…  bcrypt$$2b$…  bcrypt_sha256$$2b$…    Django
//	AQAAAAEAACcQAAAAE…                                ASP.NET Identity, version 3
//	$P$B<salt and hash>  $H$9<salt and hash>          phpass: WordPress before 6.8, phpBB 3
//	$wp$2y$10$<salt and hash>                         WordPress 6.8
//	$firebase-scrypt$ln=14,r=8,p=1$<salt>$<key>       Firebase, by [FirebaseScrypt]
//
// Each is taken up to a cost that no server stalls on; the rest is an error that Is [ErrHash] and says what it is, such as
// a bare MD5. After a good login [Result.Renew] tells whether the hash should be replaced by one of its own.
//
// WordPress removes white space around a password, and adds backslashes to one that comes through a form. Both forms of
// such a password are verified. A password that WordPress takes for another one as well is right, but not renewed: the
// owner may type the other one.
//
// The original hashed text that is not ASCII in an encoding of its own. A password that is not ASCII therefore costs
// two hashes, one of ASCII one. That holds for every identifier: [Hasher.Dummy] does the same work for one that does
// not exist, and what a hash of a lower cost leaves of that work is made up for. The exceptions are an imported hash of
// a higher cost, and one of another algorithm: until its first good login it takes its own time, of another algorithm
// once; and a hash of WordPress: twice for a password with quotes or backslashes.
//
// Several texts can be one in the original's encoding ("慢捤" is "abcd"), or in the two ("ä" in ours is "Ã¤" in the
// original's). So only [Hasher.VerifyOriginal] tries it, for hashes that the original may have made; such a twin of the
// right password is accepted there, as it was by the original, but does not replace the hash.
//
// # Whether a password is good enough
//
// A [Policy] holds the rules for new passwords, [Strength] the report that the original gave about them.
//
// No error of this package holds a password, a hash or a pepper.
package password
