"""Ingestion: conversion of raw batches to changes of a dataset."""
