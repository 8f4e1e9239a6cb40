// Sign a word on a proposal with a key that stays in this browser. The server gives the statement, this
// page looks whether it says what is shown, the key signs it, and the signed word is brought. Without
// scripts the same form gives the statement as a file.
const form = document.getElementById("sign"), bring = document.getElementById("bring");
const chosen = document.getElementById("sign-key"), said = document.getElementById("sign-said");
const TYPE = "application/vnd.in-toto+json";
const encoder = new TextEncoder();
const base64 = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes)));
const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const hex = (buffer) => [...new Uint8Array(buffer)].map((b) => b.toString(16).padStart(2, "0")).join("");

class Unfit extends Error {}

async function keyOf(file) {
  const found = /-----BEGIN PRIVATE KEY-----([A-Za-z0-9+/=\s]+)-----END PRIVATE KEY-----/.exec(await file.text()); // kfm: not a secret
  if (!found) throw new Unfit("That is no key of `kfm keys new`, or it has a passphrase.");
  try {
    const key = await crypto.subtle.importKey("pkcs8", bytesOf(found[1].replace(/\s/g, "")), { name: "Ed25519" }, true, ["sign"]);
    const { x } = await crypto.subtle.exportKey("jwk", key);
    const open = bytesOf(x.replace(/-/g, "+").replace(/_/g, "/") + "=".repeat((4 - (x.length % 4)) % 4));
    return { key, keyid: hex(await crypto.subtle.digest("SHA-256", open)).slice(0, 32) };
  } catch {
    throw new Unfit("This browser cannot sign with that key.");
  }
}

async function statement(verdict) {
  const asked = new URLSearchParams({ verdict, name: form.elements.name.value, reason: form.elements.reason.value });
  const answer = await fetch(`${form.action}?${asked}`, { cache: "no-store", headers: { accept: "application/json" } });
  const body = new Uint8Array(await answer.arrayBuffer());
  const told = JSON.parse(new TextDecoder().decode(body));
  if (!answer.ok) throw new Unfit(told.said ?? `The statement was not had: ${answer.status}.`);
  const word = told.predicate;
  const same = word.verdict === verdict && word.candidate_digest.replace("sha256:", "") === form.dataset.exact
    && word.name === form.elements.name.value.trim() && word.reason === form.elements.reason.value.trim();
  if (!same) throw new Unfit("The statement is not what this page shows. Nothing was signed; load the page again.");
  return body;
}

async function sign(verdict) {
  const { key, keyid } = await keyOf(chosen.files[0]);
  const body = await statement(verdict);
  const head = encoder.encode(`DSSEv1 ${TYPE.length} ${TYPE} ${body.length} `);
  const sig = base64(await crypto.subtle.sign({ name: "Ed25519" }, key, new Uint8Array([...head, ...body])));
  bring.elements.envelope.value = JSON.stringify({ payload: base64(body), payloadType: TYPE, signatures: [{ keyid, sig }] });
  said.textContent = "Signed. It is brought now.";
  bring.requestSubmit();
}

if (form && bring && globalThis.crypto?.subtle) {
  document.getElementById("sign-here").hidden = false;
  document.getElementById("sign-there").textContent = "Without a file here you get the statement, to be signed where your key lies:";
  form.addEventListener("submit", async (event) => {
    const reason = form.elements.reason;
    if (event.submitter?.value === "reject" && !reason.value.trim()) { // as the command line says it
      event.preventDefault();
      said.textContent = "A rejection needs a reason.";
      reason.focus();
      return;
    }
    if (!chosen.files.length) return; // as without scripts: the statement as a file
    event.preventDefault();
    said.textContent = "Signing…";
    try {
      await sign(event.submitter?.value ?? "approve");
    } catch (error) {
      said.textContent = error instanceof Unfit ? error.message : "It could not be signed.";
    }
  });
}
