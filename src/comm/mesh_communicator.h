// The collectives over a Mesh. With n ranks and Ψ bytes, each rank sends and receives
//   ReduceScatter, AllGather   (n−1)/n · Ψ, all pairs at once
//   AllReduce                  n ≤ 8: its message to everybody, who all add in rank order; else
//                              rank 0 adds and sends the result
//   Broadcast                  n ≤ 8 or small: root to everybody; else root scatters, then
//   AllGather Barrier                    n ≤ 8: everybody to everybody; else log2 n rounds
// Threads and errors as communicator.h says.
#pragma once

#include <memory>

#include "comm/mesh.h"
#include "starling/comm/communicator.h"

namespace starling::comm {

std::unique_ptr<Communicator> MakeMeshCommunicator(std::unique_ptr<Mesh> mesh);

}  // namespace starling::comm
