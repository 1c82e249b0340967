// SPDX-License-Identifier: Apache-2.0
// tools/elastic: jobs whose world changes while they train. `worker` is one member with the exact trainer; `ask` says a
// request and prints its answer; `status` prints the record; `store` keeps it; `demo` shows a job of all these.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <reshard/io/arguments.hpp>

#include "ask.hpp"
#include "demo.hpp"
#include "store.hpp"
#include "worker.hpp"

namespace {

using namespace elastic;

void add_store(CLI::App& command, std::string& url, std::string& job) {
  command.add_option("--store", url, "HOST:PORT of a store, or http://HOST:PORT of etcd")->required();
  command.add_option("--job", job, "its name")->required();
}

void add_demo(CLI::App& app, demo_words& shown, int& code) {
  CLI::App& demo = *app.add_subcommand("demo", "a job of 4 here: one joins, leaves, is replaced, is killed");
  demo.add_flag("--json", shown.json, "one object, in place of a table");
  demo.add_option("--keep", shown.keep, "a folder for the logs, which stays");
  demo.add_option("--read", shown.read, "starts nothing, and judges the logs of such a folder")->excludes("--keep");
  demo.add_option("--grace", shown.grace, "seconds to promise in");
  demo.add_option("--patience", shown.patience, "seconds until who says nothing is not waited for");
  demo.callback([&] { code = run_demo(shown); });
}

int run(int count, char** words) {
  CLI::App app("Jobs whose world changes while they train.", "tools/elastic");
  app.require_subcommand(1);
  int code = 0;

  worker_words w;
  CLI::App& worker = *app.add_subcommand("worker", "one member, one device");
  add_store(worker, w.store, w.job);
  worker.add_option("--id", w.id, "a name that is never used twice")->required();
  worker.add_option("--log", w.log, "a JSON object a line")->required();
  worker.add_option("--listen", w.listen, "where others call it");
  worker.add_option("--node", w.node, "neighbours are on other nodes where there are any");
  worker.add_option("--model", w.model, "preset or config.json; dense or moe: a GPT, trained")->required();
  worker.add_option("--layout", w.layout, "of the first world")->required();
  worker.add_option("--policy", w.policy, "a JSON file");
  worker.add_option("--found", w.found, "as many members found the job")->required();
  worker.add_option("--batch", w.batch, "samples a step")->required();
  worker.add_option("--steps", w.steps, "of the job")->required();
  worker.add_option("--step-ms", w.step_ms, "sleep in each step");
  worker.add_option("--lease", w.lease, "seconds until the store forgets who is silent");
  worker.add_option("--patience", w.patience, "seconds until who says nothing is not waited for");
  worker.add_option("--grace", w.grace, "seconds to promise in");
  worker.add_option("--snapshot", w.snapshot, "copies of what one member holds at the next one, every so many steps");
  worker.add_option("--init-s", w.init, "sleep before it registers");
  worker.add_option("--group-s", w.group, "sleep before its groups are made, beside the steps");
  worker.add_option("--budget", w.budget, "of a planned switch, which gives sources back");
  worker.add_option("--dump", w.dump, "a folder for what it holds at the end");
  worker.add_option("--kill", w.kill, "POINT[:N]: SIGKILL at the N-th time there")->take_all();
  worker.add_option("--stop", w.stop, "POINT[:N]: SIGSTOP")->take_all();
  worker.callback([&] { code = run_worker(w); });

  ask_words a;
  CLI::App& ask = *app.add_subcommand("ask", "says a request, and prints its answer");
  add_store(ask, a.store, a.job);
  ask.add_option("--id", a.id, "the request's; said again it is the same request")->required();
  ask.add_option("WORDS", a.words, "join MEMBERS, leave MEMBERS, replace MEMBER BY, layout LAYOUT, batch B, finish")
      ->required();
  ask.callback([&] { code = run_ask(a); });

  CLI::App& status = *app.add_subcommand("status", "prints the record");
  add_store(status, a.store, a.job);
  status.callback([&] { code = run_status(a); });

  std::string listen, journal;
  CLI::App& store = *app.add_subcommand("store", "keeps the records of jobs");
  store.add_option("--listen", listen, "HOST:PORT")->required();
  store.add_option("--journal", journal, "a file, synced before anything is answered")->required();
  store.callback([&] { code = run_store(listen, journal); });
  demo_words shown;
  add_demo(app, shown, code);

  try {
    app.parse(count, words);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    std::fprintf(stderr, "reshard: %s\n", reshard::io::one_line(e.what()).c_str());
    return 4;
  }
  return code;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run(count, words);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 4;
  }
}
