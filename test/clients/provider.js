// This program is an OpenID provider for TestOpenIDProvider and TestOpenIDWebapp. It prints where it
// listens. When it reads the line "keys" from its standard input, it forgets everything and signs
// with other keys.
//
// node provider.js PORT REDIRECT_URI
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { Provider } from "oidc-provider";

const [port, redirect] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;

function newKeys() {
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  return { keys: [{ ...privateKey.export({ format: "jwk" }), alg: "ES256", use: "sig", kid: randomUUID() }] };
}

function newProvider() {
  return new Provider(issuer, {
    clients: [{
      client_id: "client", client_secret: "secret of the client", redirect_uris: [redirect],
      id_token_signed_response_alg: "ES256", grant_types: ["authorization_code", "refresh_token"],
    }],
    issueRefreshToken: () => true,
    jwks: newKeys(),
    enabledJWA: { idTokenSigningAlgValues: ["ES256"] },
    cookies: { keys: [randomUUID()] },
    claims: { email: ["email", "email_verified"] },
    scopes: ["openid", "email"],
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, email: `${id}@example.org`, email_verified: true }),
    }),
  });
}

let handle = newProvider().callback();
createInterface({ input: process.stdin }).on("line", (line) => {
  if (line === "keys") {
    handle = newProvider().callback();
    console.log("keys");
  }
});
createServer((req, res) => handle(req, res)).listen(Number(port), "127.0.0.1", () => console.log(issuer));
