// The modelled second thread of every worker: connects proposed views, copies states to newcomers
// and hands over accumulators while training goes on. A copy takes time; when the donor's version
// changes meanwhile, the receiver has chunks of two versions, which is no copy.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sim/world.h"

namespace starling::sim {

class Background {
 public:
  explicit Background(World* world) : world_(world) {}

  // One more command for this worker: it begins when those before it have ended.
  void Add(SimWorker& worker, const membership::BesideCommand& command);
  // `worker` closed this generation and every older one, or died (all generations).
  void Leave(Incarnation worker, Generation up_to, bool died);

 private:
  using Key = std::pair<Generation, int64_t>;  // and the round
  // Commands that meet. Finished when all their workers were answered.
  struct Meeting {
    std::shared_ptr<const membership::View> view;
    std::set<Incarnation> expected;
    std::map<Incarnation, membership::BesideCommand> guests;
    std::map<Incarnation, Model> before;  // at the beginning: of donors and senders
    std::map<Incarnation, Version> versions;
    bool met = false;
  };

  void Begin(SimWorker& worker);
  void Meet(const Key& key, Meeting& meeting);
  void Done(const Key& key);
  void Answer(Incarnation worker, const membership::BesideCommand& command, Micros delay,
              membership::BesideCompletion completion);
  std::optional<Version> Copied(const Meeting& meeting, const membership::PrepareView& command);
  bool Gone(Incarnation worker, Generation generation) const;

  World* world_;
  std::map<Incarnation, std::deque<membership::BesideCommand>> queues_;  // front is running
  std::map<Key, Meeting> meetings_;
  std::map<Incarnation, Generation> closed_;
  std::set<Incarnation> dead_;
};

}  // namespace starling::sim
