// SPDX-License-Identifier: Apache-2.0
// elastic: what a job asks when its size changes. Questions are JSON, as a file, on stdin, or as the word itself;
// answers are JSON too. A subcommand is added by a function that takes `elastic`, keeps what it is given, and answers
// in a callback, which CLI11 calls once all words have been read.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <reshard/io/arguments.hpp>
#include <reshard/io/batch_json.hpp>
#include <reshard/io/cursor_json.hpp>
#include <reshard/io/elastic_json.hpp>
#include <reshard/io/text_output.hpp>

#include "commands.hpp"

namespace reshard::tool {

namespace {

constexpr std::size_t most_question_bytes = std::size_t{64} << 20;

/// A question, and what sentences call it.
struct question {
  std::string text;
  std::string name;
};

/// The text of a file, of stdin ("-"), or the JSON that the word is.
question read_question(const std::string& word) {
  if (word.starts_with('{') || word.starts_with('[')) return {word, "the question"};
  const bool in = word == "-";
  const std::string name = in ? "stdin" : one_line(word);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(in ? nullptr : std::fopen(word.c_str(), "rb"),
                                                             [](std::FILE* open) { return std::fclose(open); });
  std::FILE* const from = in ? stdin : file.get();
  std::string text;
  if (from == nullptr) refuse(name, " cannot be read: ", std::strerror(errno));
  char buffer[65536];
  for (std::size_t got = 1; got > 0 && text.size() <= most_question_bytes; text.append(buffer, got))
    got = std::fread(buffer, 1, sizeof buffer, from);
  if (std::ferror(from) != 0) refuse(name, " cannot be read: ", std::strerror(errno));
  if (text.size() > most_question_bytes)
    refuse(name, " is larger than ", static_cast<index_t>(most_question_bytes), " bytes, so it is no question");
  return {std::move(text), name};
}

/// What the words of a subcommand say; they live as long as its callback.
struct elastic_words {
  std::string question = "-";
  std::string size, seed = "0", pass = "0", at;
  bool samples = false, json = false;
};

/// A subcommand that is asked in JSON.
std::pair<CLI::App*, std::shared_ptr<elastic_words>> add_question(CLI::App& elastic, const char* name,
                                                                  const char* what) {
  auto words = std::make_shared<elastic_words>();
  CLI::App* const command = elastic.add_subcommand(name, what);
  command->add_option("QUESTION", words->question, "a JSON file, - for stdin (the default), or the JSON itself");
  command->add_flag("--json", words->json, "as it answers anyway");
  return {command, std::move(words)};
}

void add_cursor(CLI::App& elastic) {
  const auto [command, words] = add_question(elastic, "cursor", "whose sample is it? every rank's share of every step");
  command->add_flag("--samples", words->samples, "elements or documents of every share too");
  command->callback([words = words] {
    const question asked = read_question(words->question);
    const cursor_question read = cursor_from_json(asked.text, asked.name);
    text_output out(stdout);
    write_cursor_json(out, read, words->samples ? samples_told::yes : samples_told::no);
    out.flush();
  });
}

void add_order(CLI::App& elastic) {
  auto words = std::make_shared<elastic_words>();
  CLI::App& order = *elastic.add_subcommand("order", "which element stands at a position of a pass?");
  order.add_option("--size", words->size, "elements of the set")->required();
  order.add_option("--seed", words->seed, "0 to 18446744073709551615; 0 by default");
  order.add_option("--pass", words->pass, "which pass, from 0, the default");
  order.add_option("--at", words->at, "the position, from 0")->required();
  order.add_flag("--json", words->json, "as it answers anyway: a number");
  order.callback([words] {
    const index_t size = io::detail::digits_of("--size", words->size),
                  pass = io::detail::digits_of("--pass", words->pass);
    const sample_order order_of_pass(size, io::detail::unsigned_digits_of("--seed", words->seed), pass);
    text_output out(stdout);
    out << order_of_pass(io::detail::digits_of("--at", words->at)) << "\n";
    out.flush();
  });
}

void add_batch(CLI::App& elastic) {
  const auto [command, words] = add_question(elastic, "batch", "how large a batch has a job of another size?");
  command->callback([words = words] {
    const question asked = read_question(words->question);
    const batch_choice chosen = batch_from_json(asked.text, asked.name);
    text_output out(stdout);
    write_batch_json(out, chosen);
    out.flush();
  });
}

void add_rate(CLI::App& elastic) {
  const auto [command, words] =
      add_question(elastic, "rate", "by what is the learning rate multiplied, as a fraction?");
  command->add_option("--at", words->at, "samples, like 0,500,1000; else what the question says");
  command->callback([command = command, words = words] {
    const question asked = read_question(words->question);
    rate_question read = rate_from_json(asked.text, asked.name);
    if (command->count("--at") > 0) read.at = parse_samples("--at", words->at);
    text_output out(stdout);
    write_rate_json(out, read);
    out.flush();
  });
}

/// The table for a person, a row a line.
void write_machine_text(text_output& out) {
  for (const job_transition& row : job_table) {
    std::string line(name(row.from));
    line.resize(12, ' ');
    line += name(row.event);
    line.resize(24, ' ');
    line += name(row.to);
    if (row.epoch > 0) line.resize(36, ' '), line += "epoch + 1";
    out << line << "\n";
  }
}

void add_machine(CLI::App& elastic) {
  auto words = std::make_shared<elastic_words>();
  CLI::App& machine = *elastic.add_subcommand("machine", "phases and events of a job, and what follows what");
  machine.add_flag("--json", words->json, "answer a program: JSON on stdout");
  machine.callback([words] {
    text_output out(stdout);
    if (words->json) write_machine_json(out);
    else write_machine_text(out);
    out.flush();
  });
}

void add_standing(CLI::App& elastic) {
  const auto [command, words] = add_question(elastic, "standing", "from which version do survivors go on?");
  command->callback([words = words] {
    const question asked = read_question(words->question);
    const target_version to = target(standings_from_json(asked.text, asked.name));
    text_output out(stdout);
    write_target_json(out, to);
    out.flush();
  });
}

void add_decide(CLI::App& elastic) {
  const auto [command, words] = add_question(elastic, "decide", "what does a policy do about who is dead or slow?");
  command->callback([words = words] {
    const question asked = read_question(words->question);
    const decide_question read = decide_from_json(asked.text, asked.name);
    const elastic_decision made = decide(read.policy, read.situation);
    text_output out(stdout);
    write_decision_json(out, made);
    out.flush();
  });
}

}  // namespace

void add_elastic(CLI::App& app) {
  CLI::App& elastic = *app.add_subcommand("elastic", "what a job asks when its size changes; who runs when");
  elastic.require_subcommand(1, 1);
  elastic.footer("Every question and answer is told in docs/reference/tool.md.");
  add_cursor(elastic);
  add_order(elastic);
  add_batch(elastic);
  add_rate(elastic);
  add_schedule(elastic);
  add_machine(elastic);
  add_standing(elastic);
  add_decide(elastic);
}

}  // namespace reshard::tool
