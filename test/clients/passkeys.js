// This program judges answers of passkeys with @simplewebauthn/server. It reads a JSON array of
// answers from its standard input and prints a JSON array: for each answer null if it is right, or
// else the reason why it is not.
import { text } from "node:stream/consumers";
import { verifyAuthenticationResponse, verifyRegistrationResponse } from "@simplewebauthn/server";

const credentials = new Map();

async function judge({ response, ...expected }) {
  const site = {
    response: { clientExtensionResults: {}, ...response }, expectedChallenge: expected.challenge,
    expectedOrigin: expected.origin, expectedRPID: expected.rpID, requireUserVerification: true,
  };
  if (response.response.attestationObject) {
    const { verified, registrationInfo } = await verifyRegistrationResponse(site);
    if (!verified) throw new Error("not verified");
    credentials.set(response.id, registrationInfo.credential);
    return null;
  }
  const credential = credentials.get(response.id);
  const { verified, authenticationInfo } = await verifyAuthenticationResponse({ ...site, credential });
  if (!verified) throw new Error("not verified");
  credential.counter = authenticationInfo.newCounter;
  return null;
}

const reasons = [];
for (const answer of JSON.parse(await text(process.stdin))) {
  reasons.push(await judge(answer).catch((error) => error.message));
}
console.log(JSON.stringify(reasons));
