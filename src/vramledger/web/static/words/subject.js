// Words of what is chosen to ask about.
export default {
  en: { "model.drop": "Your own files…", "list.remove": "Remove {name}", "list.add": "Add", "open.plan": "Open in Plan",
    "flags.own": "Flags of one engine", "flags.add": "Add a flag", "flags.hint": "Such as vllm:gpu_memory_utilization=0.95." },
  ko: { "model.drop": "내 파일…", "list.remove": "{name} 제거", "list.add": "추가", "open.plan": "Plan에서 열기",
    "flags.own": "특정 engine의 flag", "flags.add": "Flag 추가", "flags.hint": "예: vllm:gpu_memory_utilization=0.95." },
};
