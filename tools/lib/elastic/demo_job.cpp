// SPDX-License-Identifier: Apache-2.0
#include "demo_job.hpp"

#include <algorithm>
#include <chrono>
#include <functional>

#include <reshard/io/print.hpp>

#include "demo_figures.hpp"
#include "log.hpp"

namespace elastic {

namespace {

constexpr const char* tiny_model =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"num_hidden_layers\": 4, \"hidden_size\": 32,\n"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"intermediate_size\": 64, \"vocab_size\": 128}\n";
// Who joins, leaves or dies changes dp alone, so that each element has more than one holder.
constexpr const char* replicated = "{\"axes\": \"dp\"}\n";
constexpr index_t calm_steps = 40;  // of every member in each world, that a usual step is told by

class shown_job {
 public:
  shown_job(const demo_words& w, const held_signals& held, const job_folder& folder)
      : words_(w), held_(held), folder_(folder), processes_(held, folder), logs_(folder.path()),
        own_(folder.path() + "/demo.log", member_name("demo"), {}) {
    folder.write("model.json", tiny_model), folder.write("policy.json", replicated);
  }

  void run() {
    start_store();
    for (const char* one : {"n0", "n1", "n2", "n3"}) start_worker(one);
    until("its first steps", [&] { return epoch_ > 0 ? calm() : is_founded(); });
    start_worker("n4"), change({.what = "join", .who = "n4"});
    change({.what = "leave", .who = "n1"});
    start_worker("n5"), change({.what = "replace", .who = "n2", .by = "n5"});
    const log_event death{.ev = "killed", .what = "kill", .who = "n0"};  // rank 0
    tell(death);
    processes_.kill(killed_ = death.who, SIGKILL);
    follow(death);
    ask({.what = "finish"});
    until("the end of all", [&] {
      return std::all_of(workers_.begin(), workers_.end(), [&](const auto& one) { return processes_.ended(one); });
    });
    for (const std::string& one : workers_)
      own_.line("exit", worker_log::text("\"who\":", worker_log::quoted(one), ",\"code\":", *processes_.ended(one)));
  }

 private:
  /// Waits; what takes too long, or a worker that fails meanwhile, ends the demo with a sentence.
  void until(const std::string& what, const std::function<bool()>& there) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (;; held_.pause(10)) {
      logs_.look();
      if (there()) return;
      for (const std::string& one : workers_)
        if (const auto code = processes_.ended(one); code && *code != (one == killed_ ? -SIGKILL : 0))
          refuse("demo: ", one, " ended with ", *code, ": ", io::one_line(processes_.printed(one), 200));
      if (processes_.ended("store")) refuse("demo: the store ended: ", io::one_line(processes_.printed("store"), 200));
      if (std::chrono::steady_clock::now() > limit) refuse("demo: 60 s went by without ", what);
    }
  }

  void start_store() {
    processes_.start("store", {"store", "--listen", "127.0.0.1:0", "--journal", folder_.path() + "/journal"});
    const std::string says = "listening ";
    until("a store", [&] {
      const std::string said = processes_.printed("store");
      if (said.starts_with(says)) store_ = said.substr(says.size());
      return !store_.empty();
    });
  }
  void start_worker(const std::string& name) {
    const auto in = [&](const char* file) { return folder_.path() + "/" + file; };
    processes_.start(name, {"worker",
                            "--store",
                            store_,
                            "--job",
                            "demo",
                            "--id",
                            name,
                            "--log",
                            in((name + ".log").c_str()),
                            "--model",
                            in("model.json"),
                            "--policy",
                            in("policy.json"),
                            "--layout",
                            "dp=4",
                            "--found",
                            "4",
                            "--batch",
                            "24",
                            "--steps",
                            "1000000",
                            "--step-ms",
                            "10",
                            "--grace",
                            std::to_string(words_.grace),
                            "--patience",
                            std::to_string(words_.patience),
                            "--lease",
                            std::to_string(words_.patience + 3)});
    workers_.push_back(name);
    until("the start of " + name, [&] {
      return std::any_of(logs_.workers().begin(), logs_.workers().end(),
                         [&](const log_event& e) { return e.ev == "start" && e.id == name; });
    });
  }

  bool is_founded() {
    for (const log_event& e : logs_.workers())
      if (e.ev == "world") epoch_ = e.epoch;
    return false;
  }
  /// Whether all members of the world have ended some steps in it.
  bool calm() const {
    std::map<std::string, index_t> steps;
    for (const log_event& e : logs_.workers()) {
      if (e.epoch != epoch_) continue;
      if (e.ev == "world")
        for (const std::string& one : e.members) steps[one] += 0;
      if (e.ev == "step") ++steps[e.id];
    }
    return std::all_of(steps.begin(), steps.end(), [](const auto& one) { return one.second >= calm_steps; });
  }
  void tell(const log_event& d) const {
    std::string fields = "\"what\":" + worker_log::quoted(d.what) + ",\"who\":" + worker_log::quoted(d.who);
    if (!d.by.empty()) fields += ",\"by\":" + worker_log::quoted(d.by);
    if (!d.text.empty()) fields += ",\"text\":" + worker_log::quoted(d.text);
    own_.line(d.ev, fields);
  }
  void ask(log_event deed) {
    const std::string name = "ask-" + deed.what;
    std::vector<std::string> words = {"ask", "--store", store_, "--job", "demo", "--id", deed.what, deed.what};
    for (const std::string& one : {deed.who, deed.by})
      if (!one.empty()) words.push_back(one);
    processes_.start(name, words);
    until("an answer to " + deed.what, [&] { return processes_.ended(name).has_value(); });
    deed.ev = "asked", deed.text = processes_.printed(name);
    tell(deed);
    if (deed.text != "done") refuse("demo: ", deed.what, " is answered '", io::one_line(deed.text, 200), "'");
  }
  void follow(const log_event& deed) {
    until("steps after " + deed.what, [&] {
      if (const index_t next = epoch_of(deed, logs_.workers(), followed_); next != 0) epoch_ = next;
      return epoch_ > followed_ && calm();
    });
    followed_ = epoch_;
  }
  void change(const log_event& deed) {
    ask(deed);
    follow(deed);
  }

  const demo_words& words_;
  const held_signals& held_;
  const job_folder& folder_;
  process_list processes_;
  log_reader logs_;
  worker_log own_;
  std::string store_, killed_;
  std::vector<std::string> workers_;
  index_t epoch_ = 0, followed_ = 1;  // of now; of the change before
};

}  // namespace

void show_job(const demo_words& w, const held_signals& held, const job_folder& folder) {
  shown_job(w, held, folder).run();
}

}  // namespace elastic
