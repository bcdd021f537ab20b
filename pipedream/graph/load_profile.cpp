#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/graph/graph_txt.hpp"
#include "pipedream/graph/profile.hpp"

namespace pipedream {

Profile load_profile(const std::string& file) { return profile_from_text(read_file(file), file == "-" ? "standard input" : file); }

Profile profile_from_text(const std::string& text, const std::string& name) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) throw InputError(name, "the file is empty, a profile is expected", "measure a model with `pipedream profile`");
  return text[first] == '{' || text[first] == '[' ? profile_from_json(text, name) : profile_from_graph_txt(text, name);
}

}  // namespace pipedream
