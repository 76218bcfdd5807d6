//! The defaults that an API server would have filled into a pod. Pure.
