// Language and appearance.
import { html, useState } from "vl/lib/dom";
import { Select } from "vl/lib/parts";
import { LANGUAGES, chooseLanguage, currentLanguage, t } from "vl/lib/words";

const KEPT = "vramledger-appearance";

export function Choices() {
  const [appearance, setAppearance] = useState(kept);
  const choose = (name) => {
    setAppearance(name);
    apply(name);
  };
  return html`<div class="choices">
    <${Select} label=${t("language")} value=${currentLanguage()} options=${Object.entries(LANGUAGES)} onChange=${chooseLanguage} />
    <${Select} label=${t("theme")} value=${appearance} options=${["auto", "light", "dark"].map((each) => [each, t(`theme.${each}`)])} onChange=${choose} />
  </div>`;
}

export function apply(name = kept()) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem(KEPT, name);
  } catch {
    // A browser that keeps nothing still shows it.
  }
  dispatchEvent(new Event("vl-appearance"));
}

function kept() {
  try {
    return localStorage.getItem(KEPT) ?? "auto";
  } catch {
    return "auto";
  }
}
