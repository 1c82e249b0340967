// SPDX-License-Identifier: Apache-2.0
#include "worker.hpp"

#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <reshard/io/arguments.hpp>
#include <reshard/io/elastic_json.hpp>
#include <reshard/io/hf_config.hpp>
#include <reshard/parallelism/parse_degrees.hpp>

#include "dump.hpp"
#include "exact_trainer.hpp"
#include "store_of.hpp"

namespace elastic {

namespace {

/// A whole number, at least 1.
index_t count_of(const char* what, const std::string& text) {
  index_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 1)
    refuse(what, " is '", io::one_line(text), "'; it is a whole number, at least 1");
  return n;
}

}  // namespace

fault_at parse_fault(const std::string& text, int signal) {
  const std::size_t colon = text.rfind(':');
  const bool counted = colon != text.npos && colon > 0 && !text.starts_with("stage:");
  const bool counted_stage = text.starts_with("stage:") && colon > 5;
  if (!counted && !counted_stage) return {text, 1, signal};
  return {text.substr(0, colon), static_cast<long>(count_of("the count of a fault", text.substr(colon + 1))), signal};
}

namespace {

patience patience_of(const char* what, double seconds) {
  if (!(seconds > 0) || seconds > 86400)
    refuse(what, " is ", worker_log::seconds(seconds), " s; it is above 0 and at most a day");
  return patience(static_cast<std::int64_t>(seconds * 1000));
}

std::string text_of_file(const char* what, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) refuse(what, ": ", io::one_line(path), " cannot be read");
  return text.str();
}

job_settings settings_of(const worker_words& w) {
  job_settings s;
  if (!w.budget.empty()) s.budget = io::parse_bytes("--budget", w.budget);
  s.job = w.job;
  s.me = member_name(w.id);
  s.listen = w.listen;
  s.node = w.node;
  const std::optional<model> trained = trained_model(w.model);
  s.model = trained ? *trained : io::load_model(w.model);
  s.layout = parse_degrees(w.layout);
  s.found = count_of("--found", w.found);
  s.batch = count_of("--batch", w.batch);
  s.steps = count_of("--steps", w.steps);
  if (!w.snapshot.empty()) s.snapshot = count_of("--snapshot", w.snapshot);
  s.lease = patience_of("--lease", w.lease);
  s.wait = patience_of("--patience", w.patience);
  s.grace = patience_of("--grace", w.grace);
  if (!w.policy.empty()) s.policy = io::policy_from_json(text_of_file("--policy", w.policy), w.policy);
  if (s.layout.world() != s.found)
    refuse("--layout ", io::one_line(w.layout), " has ", s.layout.world(), " ranks, and --found says ", s.found);
  static_cast<void>(space(s.model, s.layout));  // refused where it is not legal
  return s;
}

/// Groups whose making takes so many seconds longer, unless it is stopped.
trainer_calls with_slow_groups(trainer_calls calls, double seconds) {
  calls.make_group = [make = std::move(calls.make_group), seconds](const group_request& r,
                                                                   const std::stop_token& stop) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < until && !stop.stop_requested())
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    make(r, stop);
  };
  return calls;
}

int code_of(job_end why) {
  switch (why) {
    case job_end::done:
    case job_end::left: return 0;
    case job_end::expelled: return 3;
    case job_end::lost: return 5;
    default: return 4;
  }
}

}  // namespace

int run_worker(const worker_words& w) {
  const job_settings settings = settings_of(w);
  std::vector<fault_at> faults;
  for (const std::string& one : w.kill) faults.push_back(parse_fault(one, SIGKILL));
  for (const std::string& one : w.stop) faults.push_back(parse_fault(one, SIGSTOP));
  worker_log log(w.log, settings.me, faults);
  if (w.init > 0) std::this_thread::sleep_for(std::chrono::duration<double>(w.init));
  const std::unique_ptr<named_store> store = store_of(w.store);
  const std::unique_ptr<worker_trainer> trainer =
      trained_model(w.model) ? make_dense_trainer(settings, log, w.step_ms / 1000)
                             : std::make_unique<exact_trainer>(settings, log, w.step_ms / 1000);
  job_end why;
  index_t version;
  std::string sentence;
  {
    elastic_job* here = nullptr;
    trainer_calls calls = trainer->calls(here);
    elastic_job job(store->any(), settings,
                    w.group > 0 ? with_slow_groups(std::move(calls), w.group) : std::move(calls), log);
    here = &job;
    log.line("start", worker_log::text("\"pid\":", ::getpid(), ",\"addr\":", worker_log::quoted(job.place().address)));
    while (job.runs()) job.step(trainer->step(job));
    why = job.why(), version = job.version(), sentence = job.sentence();
    if (why == job_end::done) trainer->finish();
    trainer->leave();
  }
  std::string digests = "{}";
  trainer->told([&](const arrays_told& all) { digests = digests_json(all); });
  log.line("end", worker_log::text("\"why\":\"", name(why), "\",\"version\":", version, ",\"sentence\":",
                                   worker_log::quoted(sentence), ",\"digests\":", digests, trainer->end_fields()));
  trainer->told([&](const arrays_told& all) {
    if (!w.dump.empty() && why == job_end::done) dump(w.dump, w.id, all, version);
  });
  if (!sentence.empty()) std::fprintf(stderr, "%s\n", sentence.c_str());
  return code_of(why);
}

}  // namespace elastic
