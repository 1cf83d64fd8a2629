// A grid of plans as a heat map. Shows what it is given and asks nothing.
import { html } from "vl/lib/dom";
import { Heat } from "vl/lib/heat";
import { addWords } from "vl/lib/words";
import compared from "vl/words/compare";

addWords(compared);

/** document: what `vramledger sweep --json` writes. `open`, where given, shows a row in tab Plan. */
export function View({ document: found, open }) {
  return html`<${Heat} rows=${found.rows} onChoose=${open} />`;
}
