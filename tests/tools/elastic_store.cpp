// SPDX-License-Identifier: Apache-2.0
// A process that serves a store: says where, ends when it is told to, and has everything when it is started again.
#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include <reshard/elastic/served_store.hpp>

#include "../../tools/lib/elastic/store.hpp"
#include "../support/own_folder.hpp"

namespace {

struct started {
  explicit started(const std::string& journal) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    std::fflush(nullptr);  // what is to be printed yet is not the child's
    pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      ::dup2(ends[1], 1);
      int code = 9;
      try {
        code = elastic::run_store("127.0.0.1:0", journal);
      } catch (const std::exception& e) {
        static_cast<void>(!::write(1, e.what(), std::string(e.what()).size()));
      }
      ::_exit(code);
    }
    ::close(ends[1]);
    for (char c = 0; ::read(ends[0], &c, 1) == 1 && c != '\n';) said.push_back(c);
    ::close(ends[0]);
  }
  int ended() const {
    int status = -1;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  pid_t pid;
  std::string said;
};

}  // namespace

TEST_CASE("a store says where it listens, keeps what it answered, and ends when it is told to") {
  const testing::own_folder folder;
  const std::string journal = folder.path + "/journal";
  std::uint64_t revision = 0;
  for (const int signal : {SIGTERM, SIGINT}) {
    const started process(journal);
    const std::string words = "listening 127.0.0.1:";
    REQUIRE(process.said.starts_with(words));
    CHECK(process.said != words + "0");
    reshard::served_store store(process.said.substr(words.size() - 10));
    if (signal == SIGTERM) revision = store.swap("a", "1", reshard::no_revision);
    CHECK(store.read("a") == reshard::stored{"a", "1", revision});
    const started second(journal);
    CHECK(second.said.find("another store's") != std::string::npos);
    CHECK(second.ended() == 9);
    ::kill(process.pid, signal);
    CHECK(process.ended() == 0);
  }
  const started nowhere(folder.path + "/none/journal");
  CHECK(nowhere.said.find("cannot open the journal " + folder.path + "/none/journal") != std::string::npos);
  CHECK(nowhere.ended() == 9);
}
