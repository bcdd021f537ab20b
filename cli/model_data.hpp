#pragma once

#include <memory>
#include <string>

#include "pipedream/data/data_set.hpp"
#include "pipedream/model/model.hpp"

/// What `profile`, `train` and `eval` have in common: a model and the data it is trained with, made to fit each other.
namespace pipedream::cli {

struct ModelAndData {
  Model model;
  std::string data_spec;  ///< as given, or the synthetic data that stands in
  std::shared_ptr<const DataSource> source;
  std::shared_ptr<const DataSet> train, test;
};

/// Makes the model for the data: number of classes, channels, size, vocabulary come from the data, and the data is adapted to what the model
/// reads. Without data (an empty spec) the model has its natural form and synthetic data of that form is used.
/// @throws UsageError, InputError
[[nodiscard]] ModelAndData load_model_and_data(const std::string& model_spec, const std::string& data_spec);

/// A model's spec with a loss of `--loss` in it; empty: as it is. @throws UsageError for a model of the zoo, which has its loss, or one that names
/// another
[[nodiscard]] std::string with_loss(const std::string& model_spec, const std::string& loss);

}  // namespace pipedream::cli
