#pragma once

#include "pipedream/core/named_spec.hpp"
#include "pipedream/data/data_set.hpp"

/// One function per kind of data set; they read their options from the spec. Used through open_data.
namespace pipedream::sources {

using SourcePointer = std::shared_ptr<const DataSource>;

[[nodiscard]] SourcePointer open_fashion_mnist(NamedSpec& spec);
[[nodiscard]] SourcePointer open_idx(NamedSpec& spec);
[[nodiscard]] SourcePointer open_synthetic_images(NamedSpec& spec);
[[nodiscard]] SourcePointer open_synthetic_tokens(NamedSpec& spec);
[[nodiscard]] SourcePointer open_synthetic_fields(NamedSpec& spec);
[[nodiscard]] SourcePointer open_text(NamedSpec& spec);

/// The folder that holds Fashion-MNIST, empty if none does. Looked for in $PIPEDREAM_DATA, ./data and where Debian's package puts it.
[[nodiscard]] std::string find_fashion_mnist();

}  // namespace pipedream::sources
