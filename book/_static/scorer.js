// What the search shows first: the lab that a word belongs to, then labs, then what only mentions it. (Sphinx: html_search_scorer.)
var Scorer = {
  // By what is asked, the lab it belongs to.
  homes: [
    [/straggler|slow (worker|rank)|last to arrive/, "b_stragglers"],
    [/all.?reduce|\bring\b|collective/, "10_5_all_reduce"],
    [/\bzero|fsdp|shard/, "a_sharded_training"],
    [/slow.*job|job.*slow|faster/, "2_2_why"],
    [/deadlock|\bhang/, "10_3_synchronous_sgd"],
    [/diloco|streaming/, "10_7_finale"],
    [/local (steps|sgd)|federated|scaffold/, "10_7_local_steps"],
    [/checkpoint|\bfail|\bfault|goodput/, "b_failures"],
    [/hogwild|\block/, "10_4_without_a_lock"],
    [/stale/, "10_6_stale_gradients"],
    [/overlap|bucket/, "2_2_overlap"],
    [/compress|quanti|powersgd|top.?k/, "10_7_fewer_bytes"],
    [/\blars\b|\blamb\b|warm.?up/, "10_8_layer_by_layer"],
  ],
  score: ([page, , , , score]) => {
    const asked = (new URLSearchParams(location.search).get("q") || "").toLowerCase();
    const home = Scorer.homes.find(([words]) => words.test(asked));
    if (home && page === `notebooks/${home[1]}`) return score + 1000;
    return score + (page.startsWith("book/api/") ? -20 : /^notebooks\/[^/]*$/.test(page) ? 10 : 0);
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
