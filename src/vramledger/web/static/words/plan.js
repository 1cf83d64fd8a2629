// Words of the tab Plan and of a plan's view.
export default {
  en: { "plan.memory": "Memory by owner and phase" },
  ko: { "plan.memory": "owner와 phase별 메모리" },
};
