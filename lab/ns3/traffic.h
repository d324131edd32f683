// SPDX-License-Identifier: Apache-2.0
// A client's uploads beside its download, and its interactive traffic.
#pragma once

#include "ns3/application.h"
#include "ns3/inet-socket-address.h"
#include "ns3/nstime.h"
#include "ns3/random-variable-stream.h"
#include "ns3/socket.h"

#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace dense
{

class Upload : public ns3::Application
{
  public:
    /// Sends nothing more (Application::SetStopTime has no effect after the start).
    virtual void End() = 0;

  protected:
    bool m_running = false;
};

/// One TCP connection on which data comes at a constant rate, 512 bytes a
/// write (ns-3's OnOffApplication, always on). Data that does not fit into the
/// socket's buffer waits in the application.
class ConstantUpload : public Upload
{
  public:
    ConstantUpload(ns3::InetSocketAddress server, double bitsPerSecond);
    void End() override;
    /// The client's end of the connection, nullptr before the start.
    ns3::Ptr<ns3::Socket> GetSocket() const;

  private:
    void StartApplication() override;
    void Write();
    void Writable(ns3::Ptr<ns3::Socket> socket, uint32_t available);
    void Flush();

    ns3::InetSocketAddress m_server;
    ns3::Time m_interval;
    ns3::Ptr<ns3::Socket> m_socket;
    uint64_t m_unsent = 0; // bytes
};

/// Pages of 20 requests of 300 to 700 bytes, answers of 500 to 900 bytes (the
/// paper, section 4.1), each page on new connections: two with one request
/// at a time each ("browse": HTTP/1.1), or one that carries all 40 requests of
/// a page at once ("spdy"). Requests are a Poisson process with the given rate;
/// a late page delays the next one.
class BrowseUpload : public Upload
{
  public:
    BrowseUpload(ns3::InetSocketAddress server, double bitsPerSecond, bool multiplexed);
    void End() override;

  private:
    struct Connection
    {
        ns3::Ptr<ns3::Socket> socket;
        bool connected = false;
        uint32_t unanswered = 0; // requests
        uint32_t due = 0;        // bytes of answers still to come
        std::deque<uint32_t> queue; // requests to send, bytes
    };

    void StartApplication() override;
    void Request();
    void Pump(Connection& connection);
    void Received(ns3::Ptr<ns3::Socket> socket);
    void NewPage();
    void HandOut();
    void Connected(ns3::Ptr<ns3::Socket> socket);
    void Lost(ns3::Ptr<ns3::Socket> socket);
    Connection* Find(ns3::Ptr<ns3::Socket> socket);

    ns3::InetSocketAddress m_server;
    const bool m_multiplexed;
    std::vector<std::unique_ptr<Connection>> m_connections;
    ns3::Ptr<ns3::ExponentialRandomVariable> m_gap;
    ns3::Ptr<ns3::UniformRandomVariable> m_size;
    unsigned m_left = 0;    // requests of this page not yet handed out
    unsigned m_pending = 0; // requests due but not handed out
};

/// Answers a BrowseUpload, and counts the bytes from it or a ConstantUpload.
/// A request starts with its own size and its answer's, 4 bytes each.
class UploadServer : public ns3::Application
{
  public:
    UploadServer(uint16_t port, bool answers);
    uint64_t Received() const;

  private:
    struct Parser
    {
        std::vector<uint8_t> header;
        uint32_t left = 0; // bytes of the request still to come
        uint32_t answer = 0;
    };

    void StartApplication() override;
    void Accept(ns3::Ptr<ns3::Socket> socket, const ns3::Address& from);
    void Closed(ns3::Ptr<ns3::Socket> socket);
    void Read(ns3::Ptr<ns3::Socket> socket);

    const uint16_t m_port;
    const bool m_answers;
    ns3::Ptr<ns3::Socket> m_listener;
    std::map<ns3::Ptr<ns3::Socket>, Parser> m_parsers;
    uint64_t m_received = 0;
};

/// Requests of up bytes on one TCP connection, with gap between them on average
/// (exponential), each answered with down bytes: a key press and its echo, or a
/// chat message and its receipt. Delays are round trips.
class Exchange : public ns3::Application
{
  public:
    Exchange(ns3::InetSocketAddress server, ns3::Time gap, uint32_t up, uint32_t down);
    std::vector<double> delays; // s

  private:
    void StartApplication() override;
    void StopApplication() override;
    void Send();
    void Received(ns3::Ptr<ns3::Socket> socket);

    ns3::InetSocketAddress m_server;
    const uint32_t m_up, m_down;
    ns3::Ptr<ns3::ExponentialRandomVariable> m_gap;
    ns3::Ptr<ns3::Socket> m_socket;
    std::deque<ns3::Time> m_sent;
    uint32_t m_bytes = 0;
    bool m_running = false;
};

/// Queries to a name server, with gap between them on average (exponential), each
/// in a datagram that a UdpEchoServer sends back. Delays are round trips; a query
/// without an answer counts as the time that a resolver waits for one.
class Lookups : public ns3::Application
{
  public:
    Lookups(ns3::InetSocketAddress server, ns3::Time gap, uint32_t bytes);
    std::vector<double> delays; // s

  private:
    void StartApplication() override;
    void Send();
    void Received(ns3::Ptr<ns3::Socket> socket);
    void Expired(uint32_t number);

    ns3::InetSocketAddress m_server;
    const uint32_t m_bytes;
    ns3::Ptr<ns3::ExponentialRandomVariable> m_gap;
    ns3::Ptr<ns3::Socket> m_socket;
    std::map<uint32_t, ns3::Time> m_sent; // not answered yet
    uint32_t m_number = 0;
};

} // namespace dense
