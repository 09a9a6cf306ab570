// The collectives over a Mesh of n ranks:
//
//   ReduceScatter, AllGather   all pairs at once; with even shares of Ψ bytes each rank sends and
//                              receives (n−1)/n · Ψ
//   AllReduce                  n ≤ 8: everybody sends all to everybody, who add in rank order;
//                              else rank 0 adds and sends the result
//   Broadcast                  n ≤ 8 or small: the root sends to everybody; else it scatters, and
//                              an AllGather follows
//   Barrier                    n ≤ 8: everybody to everybody; else ⌈log2 n⌉ rounds
//
// Threads and errors as communicator.h says.
#pragma once

#include <memory>

#include "comm/mesh.h"
#include "starling/comm/communicator.h"

namespace starling::comm {

std::unique_ptr<Communicator> MakeMeshCommunicator(std::unique_ptr<Mesh> mesh);

}  // namespace starling::comm
