// Passkeys in forms: <form data-passkey="create"> or "get", with data-options="URL" for challenges.
(() => {
  "use strict";
  const decode = (text) =>
    Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const encode = (data) => btoa(String.fromCharCode(...new Uint8Array(data)))
    .replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

  // options returns options for the browser, in which bytes are arrays.
  function options(json) {
    const credentials = (list) => (list || []).map((c) => ({ ...c, id: decode(c.id) }));
    const all = { ...json, challenge: decode(json.challenge) };
    if (json.user) all.user = { ...json.user, id: decode(json.user.id) };
    if (json.excludeCredentials) all.excludeCredentials = credentials(json.excludeCredentials);
    if (json.allowCredentials) all.allowCredentials = credentials(json.allowCredentials);
    return all;
  }

  // answer returns the answer of an authenticator as JSON.
  function answer(credential) {
    const r = credential.response;
    const response = { clientDataJSON: encode(r.clientDataJSON) };
    for (const name of ["attestationObject", "authenticatorData", "signature", "userHandle"]) {
      if (r[name]) response[name] = encode(r[name]);
    }
    if (r.getTransports) response.transports = r.getTransports();
    return JSON.stringify({
      id: credential.id, rawId: encode(credential.rawId), type: credential.type, response, clientExtensionResults: {},
    });
  }

  // put sets a field of a form, and adds the field if necessary.
  function put(form, name, value) {
    const add = () => form.appendChild(Object.assign(document.createElement("input"), { type: "hidden", name }));
    (form.elements.namedItem(name) || add()).value = value;
  }

  let waiting; // aborts the latest ceremony
  const renewal = 4 * 60e3; // a challenge is good for five minutes

  async function run(form, mediation) {
    if (waiting) waiting.abort();
    const { signal } = waiting = new AbortController();
    const reply = await fetch(form.dataset.options, {
      method: "POST", body: new URLSearchParams(new FormData(form)), credentials: "same-origin", signal,
    });
    if (reply.redirected) return location.assign(reply.url); // the visitor must verify first
    const failed = reply.status === 422 && !mediation; // the page says what is wrong
    if (failed) put(form, "passkey", "");
    if (failed) return form.submit();
    if (!reply.ok) throw new Error("no challenge: " + reply.status);
    const { publicKey, state } = await reply.json();
    const ask = { publicKey: options(publicKey), signal, ...(mediation && { mediation }) };
    put(form, "passkey", answer(await navigator.credentials[form.dataset.passkey](ask)));
    if (state) put(form, "state", state);
    document.querySelectorAll("[data-passkey-with]:checked").forEach((box) => put(form, box.name, box.value));
    form.submit();
  }

  function suggest(form) { // offers passkeys in the browser's autofill until the form is sent
    const offer = () => run(form, "conditional").catch(() => {});
    const timer = setInterval(offer, renewal);
    form.addEventListener("submit", () => clearInterval(timer));
    offer();
  }
  if (!window.PublicKeyCredential) return;
  const show = (form, failed) => form.querySelectorAll("[data-passkey-error]").forEach((e) => { e.hidden = !failed; });
  document.querySelectorAll("[data-passkey-missing]").forEach((e) => { e.hidden = true; });
  for (const form of document.querySelectorAll("form[data-passkey]")) {
    form.hidden = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      show(form, false);
      run(form).catch(() => show(form, true));
    });
    const failed = form.querySelector("[data-passkey-error]:not([hidden])");
    const conditional = "conditional" in form.dataset && PublicKeyCredential.isConditionalMediationAvailable;
    if (conditional && !failed) conditional.call(PublicKeyCredential).then((can) => can && suggest(form)).catch(() => {});
  }
})();
