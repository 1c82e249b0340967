// SPDX-License-Identifier: Apache-2.0
// Runs the tool, whose path is in RESHARD_TOOL, and tells what it said.
#pragma once

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace testing {

namespace fs = std::filesystem;
using words = std::vector<std::string>;

/// A folder of our own, gone at the end.
struct scratch {
  fs::path folder;
  scratch() {
    // mkdtemp fills these in
    std::string name = (fs::temp_directory_path() / "reshard-tool-").string() + std::string(6, 'X');
    REQUIRE(mkdtemp(name.data()) != nullptr);
    folder = name;
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() { fs::remove_all(folder); }
  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(folder / name, std::ios::binary) << content;
    return (folder / name).string();
  }
};
inline const scratch& here() {
  static const scratch only;
  return only;
}

struct answer {
  int code = -1;  // 128 + signal where it was killed
  std::string out, err;
};

inline std::string content_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// Asks with stdout going to `to`, where the answer's `out` is then read from; stdout is closed where that is empty.
inline answer ask(const words& arguments, const fs::path& to) {
  const char* tool = std::getenv("RESHARD_TOOL");
  REQUIRE_MESSAGE(tool != nullptr, "RESHARD_TOOL names the program to test");
  const fs::path err = here().folder / "stderr";
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto redirect = [](const fs::path& file, int descriptor) {
      dup2(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), descriptor);
    };
    redirect(err, STDERR_FILENO);
    if (to.empty()) close(STDOUT_FILENO);  // last: the next file that is opened has its number
    else redirect(to, STDOUT_FILENO);
    std::vector<char*> argv{const_cast<char*>(tool)};
    for (const std::string& word : arguments) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(tool, argv.data());
    _exit(127);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          fs::is_regular_file(to) ? content_of(to) : "", content_of(err)};
}
inline answer ask(const words& arguments) { return ask(arguments, here().folder / "stdout"); }

}  // namespace testing
