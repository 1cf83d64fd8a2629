// Starts a view in a file of its own: the document is in the page.
import { html, render } from "vl/lib/dom";
import { Command } from "vl/lib/parts";
import { Choices } from "vl/lib/choices";
import { useLanguage } from "vl/lib/words";

export function start(View) {
  const told = JSON.parse(document.getElementById("document").textContent);
  render(html`<${Alone} View=${View} told=${told} />`, document.getElementById("root"));
}

function Alone({ View, told }) {
  useLanguage();
  return html`<header class="top"><b>vramledger</b><${Choices} /></header><main class="alone"><${View} document=${told.document} beside=${told.beside} /><${Command} line=${told.command} /></main>`;
}
