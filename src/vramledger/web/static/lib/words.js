// Two languages. Each part of the page has a module of words beneath words/ and adds it here; terms of the field stay English in both.
import { useEffect, useState } from "preact/hooks";
import common from "vl/words/common";

const KEPT = "vramledger-language";
const books = { en: { ...common.en }, ko: { ...common.ko } };
const listeners = new Set();
let language = kept() ?? (globalThis.navigator?.language?.startsWith("ko") ? "ko" : "en");

export const LANGUAGES = { en: "English", ko: "한국어" };

/** Words of a part: {en: {key: text}, ko: {key: text}}. */
export function addWords(book) {
  for (const name of Object.keys(books)) Object.assign(books[name], book[name]);
}

/** The text of a key; {name} within it is put in from `values`. */
export function t(key, values = {}) {
  const text = books[language][key] ?? books.en[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

export const currentLanguage = () => language;

export function chooseLanguage(name) {
  language = name in books ? name : "en";
  try {
    localStorage.setItem(KEPT, language);
  } catch {
    // A browser that keeps nothing still shows it.
  }
  document.documentElement.lang = language;
  for (const told of listeners) told(language);
}

/** Draws a component anew when the language changes. */
export function useLanguage() {
  const [name, told] = useState(language);
  useEffect(() => {
    listeners.add(told);
    return () => listeners.delete(told);
  }, []);
  return name;
}

function kept() {
  try {
    const found = localStorage.getItem(KEPT);
    return Object.hasOwn(books, found) ? found : null;
  } catch {
    return null;
  }
}
