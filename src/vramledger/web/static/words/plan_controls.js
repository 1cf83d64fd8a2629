// Words of the controls of a plan's question.
export default {
  en: {
    "pc.device.hint": "Type to search, or custom:79.19GiB", "pc.version": "Version", "pc.parallel": "Parallel plan", "pc.auto": "auto", "pc.weights": "Weights loaded as", "pc.kv": "KV format",
    "pc.contextOfAll": "Context of all requests", "pc.share": "Share of the device", "pc.sequences": "Sequences at once, at most", "pc.concurrency.hint": "Requests of the full context that must be held at once",
    "pc.given": "{count} given", "pc.default": "engine's default", "pc.on": "on", "pc.off": "off",
  },
  ko: {
    "pc.device.hint": "입력하여 검색, 또는 custom:79.19GiB", "pc.version": "버전", "pc.parallel": "Parallel plan", "pc.auto": "auto", "pc.weights": "Weights 적재 형식", "pc.kv": "KV 형식",
    "pc.contextOfAll": "모든 요청의 context 합", "pc.share": "Device 사용 비율", "pc.sequences": "동시 sequence 최대", "pc.concurrency.hint": "동시에 담아야 하는 전체 길이 요청 수",
    "pc.given": "{count}개 지정됨", "pc.default": "engine 기본값", "pc.on": "켬", "pc.off": "끔",
  },
};
