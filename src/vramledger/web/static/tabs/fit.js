import { html } from "vl/lib/dom";
import { t } from "vl/lib/words";

/** known: the server's catalogue; state: what a shared address holds, or null. */
export function Tab({ known, state }) {
  return html`<h1>${t("tab.fit")}</h1>`;
}
