#include "cli/run_setup.h"

namespace starling::cli {

membership::Options ProtocolOptions(const config::Config& config, int expected_workers,
                                    bool accept_config_change) {
  membership::Options options;
  options.run_id = config.run.name;
  options.config_hash = config::ConfigHash(config);
  options.model_hash = config::ModelHash(config.model);
  options.micro_batches = config.training.micro_batches();
  options.total_steps = config.training.steps;
  options.checkpoint_every = config.checkpoint.every_steps;
  options.evaluate_every = config.training.evaluate_every;
  options.evaluation = !config.data.validation.empty();
  options.digest_every = config.training.digest_every;
  options.min_workers = static_cast<int>(config.elastic.min_workers);
  options.max_workers = static_cast<int>(config.elastic.max_workers);
  options.expected_workers = expected_workers;
  options.detection = config.elastic.detection;
  options.patience = config.elastic.patience;
  options.stuck_after = config.elastic.stuck_after;
  options.join_stall_max = config.elastic.join_stall_max;
  options.gather_after = config.elastic.gather_after;
  options.accept_config_change = accept_config_change;
  return options;
}

std::string FileNameOf(std::string_view worker_name) {
  std::string name(worker_name);
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '.' || c == '_' || c == '-';
    if (!plain) c = '_';
  }
  return name;
}

}  // namespace starling::cli
