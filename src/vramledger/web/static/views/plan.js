// A plan: its ledgers, its pool, its verdict. Shows what it is given and asks nothing.
import { html } from "vl/lib/dom";
import { Verdict } from "vl/lib/parts";
import { addWords, t } from "vl/lib/words";
import words from "vl/words/plan";

addWords(words);

/** document: what \`vramledger plan --json\` writes. */
export function View({ document: plan }) {
  return html`<h2>${t("plan.memory")}</h2><${Verdict} verdict=${plan.verdict} />`;
}
