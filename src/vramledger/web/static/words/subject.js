// Words of what is chosen to ask about.
export default {
  en: { "model.drop": "Your own files…", "list.remove": "Remove {name}", "list.add": "Add", "open.plan": "Open in Plan" },
  ko: { "model.drop": "내 파일…", "list.remove": "{name} 제거", "list.add": "추가", "open.plan": "Plan에서 열기" },
};
