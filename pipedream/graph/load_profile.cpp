#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/graph/graph_txt.hpp"
#include "pipedream/graph/profile.hpp"

namespace pipedream {

Profile load_profile(const std::string& file) {
  const std::string text = read_file(file);
  const std::string name = file == "-" ? "standard input" : file;
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) throw InputError(name, "the file is empty, a profile is expected", "measure a model with `pipedream profile`");
  return text[first] == '{' || text[first] == '[' ? profile_from_json(text, name) : profile_from_graph_txt(text, name);
}

}  // namespace pipedream
