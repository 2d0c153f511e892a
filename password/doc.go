// Package password hashes passwords, verifies them, and decides whether a new password is
// acceptable. It knows neither Redis nor schemas.
//
// A [Hasher] writes bcrypt hashes with the prefix $2a$, which the original of this store,
// CoffeeNode UserDB, also reads. It hashes the bytes of a password exactly as given, without
// trimming, folding or normalizing them. The stored form is one of:
//
//	$2a$12$<22 characters of salt><31 of hash>        60 bytes
//	pKEY$2a$12$<22 characters of salt><31 of hash>    64 bytes, with a pepper
//
// KEY is three characters that identify the pepper and reveal nothing else about it. Both forms are
// short enough for Redis to store the entry compactly.
//
// bcrypt reads 72 bytes and ignores the rest. A longer password is therefore refused when it is set
// and wrong when it is verified, except by [Hasher.VerifyImported], because many other products let
// bcrypt ignore the rest. A pepper is a secret key that is not in the database. With a pepper, the
// limit is 1024 bytes: bcrypt then receives the base64 of the password's HMAC-SHA-384.
//
// # Supported hashes
//
// A Hasher also verifies $2b$ and $2y$, argon2id, scrypt, PBKDF2 (SHA-1, SHA-256, SHA-512) and
// sha-crypt ($5$, $6$) in their common text forms, and the formats of other products:
//
//	pbkdf2_sha256$390000$<salt>$<key>                 Django; also pbkdf2_sha1$ and scrypt$
//	argon2$argon2id$…  bcrypt$$2b$…  bcrypt_sha256$$2b$…    Django
//	AQAAAAEAACcQAAAAE…                                ASP.NET Identity, version 3
//	$P$B<salt and hash>  $H$9<salt and hash>          phpass: WordPress before 6.8, phpBB 3
//	$wp$2y$10$<salt and hash>                         WordPress 6.8
//	$firebase-scrypt$ln=14,r=8,p=1$<salt>$<key>       Firebase, by [FirebaseScrypt]
//	prepared:sha256-hex:$2b$10$…                      Meteor and others, by [Prepared]
//	$S$D<salt and hash>                               Drupal 7 to 10
//	$bcrypt-sha256$v=2,t=2b,r=12$<salt>$<hash>        passlib
//
// and spellings of the same algorithms: those of Werkzeug, Better Auth, Lucia, AdonisJS, ZITADEL,
// Spring Security, OpenLDAP, Dovecot and Nextcloud, and the PHC string format.
//
// Each algorithm is accepted up to a cost that does not stall a server. For every other text the
// error matches [ErrHash] and says what the text is, such as a bare MD5. After a successful login,
// [Result.Renew] reports whether to replace the hash with a new one.
//
// Better Auth and Lucia normalize passwords to NFKC. A password in another form verifies, but the
// hash is not renewed, because the owner may type either form.
//
// WordPress removes white space around a password, and adds backslashes to a password that is
// entered into one of its forms. Such a password verifies with and without the backslashes. If
// WordPress would also accept a different password, the password verifies but the hash is not
// renewed, because the owner may type the other one.
//
// A keyboard may send "ä" as one code point or as two. A password is therefore also compared in its
// other form, composed (NFC) or decomposed (NFD). If only that form is right, the hash is not
// renewed. The original hashed text beyond ASCII in an encoding of its own. Verifying a password
// beyond ASCII therefore costs three hashes, and an ASCII password one. The cost is the same for
// every identifier: [Hasher.Dummy] does the same work for an identifier that does not exist, and
// extra work makes up for a stored hash of a lower cost. There are three exceptions. An imported
// hash with a higher cost takes longer. A hash of another algorithm takes that algorithm's time
// until the first successful login: once, or twice for a password beyond ASCII. And a hash of
// WordPress takes that time once more for a password with quotes or backslashes.
//
// Different texts can have the same encoding in the original ("慢捤" equals "abcd"), or one text in
// our encoding can equal another in the original's ("ä" equals "Ã¤"). So only
// [Hasher.VerifyOriginal] tries the original's encoding, for hashes that the original may have
// written. Like the original, it accepts a different text that has the same encoding as the right
// password, but it does not renew the hash for such a text.
//
// # Rules for new passwords
//
// A [Policy] holds the rules for new passwords. [Strength] returns the original's report about a
// password.
//
// No error of this package contains a password, a hash or a pepper.
package password
