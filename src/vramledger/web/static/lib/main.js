// The page: tabs, and what the address says of them.
import { html, render, useEffect, useState } from "vl/lib/dom";
import { catalogue } from "vl/lib/api";
import { Choices, apply } from "vl/lib/choices";
import { Problem } from "vl/lib/parts";
import { useAddress } from "vl/lib/state";
import { currentLanguage, t, useLanguage } from "vl/lib/words";
import { Tab as Plan } from "vl/tabs/plan";
import { Tab as Compare } from "vl/tabs/compare";
import { Tab as Fit } from "vl/tabs/fit";
import { Tab as Capacity } from "vl/tabs/capacity";
import { Tab as Live } from "vl/tabs/live";
import { Tab as Diagnose } from "vl/tabs/diagnose";

const TABS = { plan: Plan, compare: Compare, fit: Fit, capacity: Capacity, live: Live, diagnose: Diagnose };

function Page() {
  useLanguage();
  const address = useAddress();
  const [known, setKnown] = useState(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    catalogue().then(setKnown, (found) => setProblem(found.message));
  }, []);
  const name = address && Object.hasOwn(TABS, address.tab) ? address.tab : "plan";
  const Shown = TABS[name];
  useEffect(() => {
    // On a phone the tabs are wider than the screen.
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }, [name]);
  useEffect(() => {
    document.title = `${t(`tab.${name}`)} · vramledger`;
  });
  return html`<a class="skip" href="#content" onClick=${(event) => { event.preventDefault(); document.getElementById("content").focus(); }}>${t("skip")}</a>
    <header class="top"><b>vramledger</b>
      <nav aria-label="vramledger">${Object.keys(TABS).map((each) => html`<a href=${`#${each}`} aria-current=${each === name ? "page" : undefined}>${t(`tab.${each}`)}</a>`)}</nav>
      <${Choices} /></header>
    <main id="content" tabindex="-1"><${Problem} message=${problem} />
      ${known && address ? html`<${Shown} key=${name} known=${known} state=${address.tab === name ? address.state : null} />` : !problem && html`<p>${t("loading")}</p>`}</main>`;
}

apply();
document.documentElement.lang = currentLanguage();
render(html`<${Page} />`, document.getElementById("root"));
