// SPDX-License-Identifier: Apache-2.0
#include "demo.hpp"

#include <cstdio>

#include <reshard/io/hf_config.hpp>

#include "demo_job.hpp"
#include "demo_print.hpp"

namespace elastic {

using namespace reshard;

namespace {

void read_job(const std::string& folder, job_verdict& v, std::vector<change_figures>& changes) {
  log_reader logs(folder);
  logs.look(look_for::the_end);
  v = judge_history(logs.deeds(), logs.workers());
  judge_digests(v, io::load_model(folder + "/model.json"), logs.workers());
  try {
    changes = figures_of(logs.deeds(), logs.workers());
  } catch (const refusal& why) {
    v.wrong.emplace_back(reshard::detail::without_prefix(why.what()));
  }
}

}  // namespace

int run_demo(const demo_words& w) {
  job_verdict v;
  std::vector<change_figures> changes;
  if (!w.read.empty()) {
    read_job(w.read, v, changes);
  } else {
    const held_signals held;
    try {
      const job_folder folder(w.keep);
      show_job(w, held, folder);
      read_job(folder.path(), v, changes);
    } catch (const told_to_end& by) {
      return 128 + by.signal;
    }
  }
  std::fputs((w.json ? demo_json(v, changes) : demo_text(v, changes)).c_str(), stdout);
  return v.wrong.empty() ? 0 : 1;
}

}  // namespace elastic
