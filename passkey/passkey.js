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
      id: credential.id, rawId: encode(credential.rawId), type: credential.type, response,
      clientExtensionResults: {},
    });
  }

  // put sets a field of a form, which it adds if necessary.
  function put(form, name, value) {
    let input = form.elements.namedItem(name);
    if (!input) {
      input = Object.assign(document.createElement("input"), { type: "hidden", name });
      form.append(input);
    }
    input.value = value;
  }

  let waiting; // ends the ceremony that waits in a list of suggestions

  async function run(form, mediation) {
    if (waiting) waiting.abort();
    waiting = new AbortController();
    const signal = waiting.signal;
    const reply = await fetch(form.dataset.options, {
      method: "POST", body: new URLSearchParams(new FormData(form)), credentials: "same-origin",
    });
    if (!reply.ok) throw new Error("no challenge: " + reply.status);
    const { publicKey, state } = await reply.json();
    const ask = { publicKey: options(publicKey), signal };
    if (mediation) ask.mediation = mediation;
    const kind = form.dataset.passkey === "create" ? "create" : "get";
    put(form, "passkey", answer(await navigator.credentials[kind](ask)));
    if (state) put(form, "state", state);
    form.submit();
  }

  const show = (form, failed) => form.querySelectorAll("[data-passkey-error]")
    .forEach((e) => { e.hidden = !failed; });

  for (const form of document.querySelectorAll("form[data-passkey]")) {
    if (!window.PublicKeyCredential) continue;
    form.hidden = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      show(form, false);
      run(form).catch(() => show(form, true));
    });
    const conditional = PublicKeyCredential.isConditionalMediationAvailable;
    if ("conditional" in form.dataset && conditional) {
      conditional.call(PublicKeyCredential)
        .then((can) => can && run(form, "conditional")).catch(() => {});
    }
  }
})();
