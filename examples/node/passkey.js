// Passkeys in forms. <form hidden data-passkey="create"> or "get" is shown if the browser can use
// passkeys. Submitting it fetches a challenge from data-challenge="URL", and then sends the form
// with the authenticator's answer.

const { PublicKeyCredential: parser } = window

async function send(form) {
  const reply = await fetch(form.dataset.challenge, { method: 'POST', body: new URLSearchParams(new FormData(form)) })
  if (reply.redirected) return location.assign(reply.url) // to the page for signing in
  if (!reply.ok) throw new Error(`no challenge: ${reply.status}`)
  const { publicKey } = await reply.json()
  const credential = form.dataset.passkey === 'create'
    ? await navigator.credentials.create({ publicKey: parser.parseCreationOptionsFromJSON(publicKey) })
    : await navigator.credentials.get({ publicKey: parser.parseRequestOptionsFromJSON(publicKey) })
  form.elements.passkey.value = JSON.stringify(credential)
  form.submit()
}

for (const form of parser?.parseCreationOptionsFromJSON ? document.querySelectorAll('form[data-passkey]') : []) {
  form.hidden = false
  form.addEventListener('submit', (event) => {
    event.preventDefault()
    const failed = form.querySelector('[role=alert]')
    failed.hidden = true
    send(form).catch((err) => {
      console.error(err)
      failed.hidden = false
    })
  })
}
