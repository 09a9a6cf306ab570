// The modelled communicator: a collective of generation g completes when all its members have
// arrived, and fails on all when one dies or closes g. Completions reach the ranks at different
// times, so one rank may know a vote's result while another is already being revoked.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "sim/world.h"

namespace starling::sim {

class Communicator {
 public:
  explicit Communicator(World* world) : world_(world) {}

  // The worker's running command meets the others'. Completes it in time, or fails it.
  void Arrive(SimWorker& worker, const membership::Command& command);
  // `worker` closed this generation and every older one, or died (all generations).
  void Leave(Incarnation worker, Generation up_to, bool died);
  // A connection of this worker breaks: what it takes part in fails for all.
  void Break(Incarnation worker);

 private:
  struct Guest {
    uint64_t command = 0;
    membership::Command what;
  };
  // Commands that meet: of one generation, kind and turn.
  struct Meeting {
    std::shared_ptr<const membership::View> view;
    std::set<Incarnation> expected;
    std::map<Incarnation, Guest> guests;
    bool met = false;
    bool gone = false;                  // one of them has left: it fails for all
    std::vector<Incarnation> suspects;  // who was the first to
  };
  // The secret of a generation tells apart what a lost journal numbers alike: its first member
  // does.
  using Key = std::tuple<Generation, size_t, int, Incarnation>;

  void Meet(Meeting& meeting);
  void MeetConnect(Meeting& meeting);
  void MeetCopy(Meeting& meeting);
  void MeetReduce(Meeting& meeting);
  void MeetVote(Meeting& meeting);
  void FailGuest(const Meeting& meeting, Incarnation worker, const Guest& guest,
                 const std::string& reason);
  void FailGuests(Meeting& meeting, const std::string& reason, std::vector<Incarnation> suspects,
                  Incarnation except);
  bool Gone(Incarnation worker, Generation generation) const;
  Generation GenerationOf(const membership::Command& command) const;
  void Finish(Incarnation worker, const Guest& guest, membership::Completion done);

  World* world_;
  std::map<Key, Meeting> meetings_;
  std::map<std::pair<Generation, Incarnation>, int> turns_;  // reduces and votes so far
  std::map<std::pair<Generation, Incarnation>, std::shared_ptr<const membership::View>> views_;
  int64_t votes_ = 0;
  std::map<Incarnation, Generation> closed_;
  std::set<Incarnation> dead_;
};

}  // namespace starling::sim
