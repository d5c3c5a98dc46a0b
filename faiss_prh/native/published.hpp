// A value that one thread replaces while others read it.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace prh {

// Readers never wait, so that a child forked in the middle of a read finds no lock held. A replaced value is kept until
// a moment when nobody reads.
template <class T>
class Published {
    struct Node {
        T value;
        Node* next = nullptr;
    };

  public:
    // Keeps what it points to alive.
    class Reading {
      public:
        explicit Reading(const Published& from) : from_(from) {
            from_.readers_++;
            node_ = from_.current_;
        }
        Reading(const Reading&) = delete;
        Reading& operator=(const Reading&) = delete;
        ~Reading() { from_.stop_reading(); }

        explicit operator bool() const { return node_ != nullptr; }
        const T& operator*() const { return node_->value; }
        const T* operator->() const { return &node_->value; }

      private:
        const Published& from_;
        const Node* node_;
    };

    Published() = default;
    Published(const Published&) = delete;
    Published& operator=(const Published&) = delete;
    ~Published() {
        free_all(current_);
        free_all(retired_);
    }

    void replace(T value) {
        const Reading reading(*this);   // frees what is retired, if it is the last
        if (Node* old = current_.exchange(new Node{std::move(value)})) retire(old);
    }

  private:
    void retire(Node* first) const {
        Node* last = first;
        while (last->next) last = last->next;
        last->next = retired_;
        while (!retired_.compare_exchange_weak(last->next, first)) {}
    }

    // What was retired before the number of readers fell to zero, nobody reads any more.
    void stop_reading() const {
        Node* const retired = retired_.exchange(nullptr);
        if (--readers_ == 0)
            free_all(retired);
        else if (retired)
            retire(retired);
    }

    static void free_all(Node* node) {
        while (node) delete std::exchange(node, node->next);
    }

    std::atomic<Node*> current_{nullptr};
    mutable std::atomic<Node*> retired_{nullptr};
    mutable std::atomic<int> readers_{0};
};

}  // namespace prh
