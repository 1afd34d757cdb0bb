"""LangChain: retriever, vector store, tools, SQL tool, middleware, record manager, query translator, migration."""
